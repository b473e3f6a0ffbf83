"""What the fuzzer feeds: every parser of bytes that come from outside, by a number that the input starts with.

Contract of all of them: whatever the bytes are, a parser returns, or raises an error of ours.
"""

import atexit
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from tests.support.frames.enforcement import START_MS, WINDOW, Pair

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config import cost_model_file as cost_file
from kafka_quotas.enforcement.config import listener_settings
from kafka_quotas.enforcement.config.client_policy import OnViolation, read_policy_file
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.decisions import requests_from_json
from kafka_quotas.enforcement.filters.topic_filters import TopicFilters
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry
from kafka_quotas.enforcement.sharing.state import read_state
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.stores.static import read_static_quotas
from kafka_quotas.wire.codec.encoding import framed
from kafka_quotas.wire.connection import preamble
from kafka_quotas.wire.connection.distinguished_name import subject_name
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RequestHeader, parse_request_header
from kafka_quotas.wire.proxying import fetch_request, fetch_response, produce, sasl, throttle_time
from kafka_quotas.wire.proxying.api_versions import clamp
from kafka_quotas.wire.proxying.broker_addresses import rewrite_addresses
from kafka_quotas.wire.proxying.topics import (
    iter_topics,
    parse_metadata_request,
    parse_mutation,
    topic_results,
    topics_in_the_making,
)

Target: TypeAlias = Callable[[bytes], object]

PLACES = [(key, version) for key, api in API_TABLE.items() for version in range(api.min_version, api.max_version + 1)]


def _translate(node_id: int, host: str, port: int) -> tuple[str, int]:
    return "127.0.0.1", 20_000 + (node_id + port + len(host)) % 10_000


def request(content: bytes) -> None:
    """Read all that is read of a request, whole for parsers of whole requests."""
    frame = framed(content)
    header = parse_request_header(frame)
    if header is None:
        return
    reader = _REQUEST_READERS.get(header.api_key)
    if reader is not None:
        reader(frame, header)


def _read_produce(frame: bytes, header: RequestHeader) -> None:
    for piece in (frame, frame[: len(frame) // 2]):
        produce.acks(piece, header)
    produce.parse_produce(frame, header)


def _read_fetch(frame: bytes, header: RequestHeader) -> None:
    for piece in (frame, frame[: header.end + len(frame) % 20]):
        fetch_request.replica_id(piece, header)
        fetch_request.fetch_session(piece, header)
        _read_limits(piece, header)


def _read_share_fetch(frame: bytes, header: RequestHeader) -> None:
    for piece in (frame, frame[: header.end + len(frame) % 20]):
        _read_limits(piece, header)


def _read_limits(piece: bytes, header: RequestHeader) -> None:
    limits = fetch_request.fetch_limits(piece, header)
    if limits is not None:
        limits.lowered(1000)


_REQUEST_READERS: dict[int, Callable[[bytes, RequestHeader], object]] = {
    0: _read_produce,
    1: _read_fetch,
    3: parse_metadata_request,
    17: sasl.handshake_mechanism,
    19: parse_mutation,
    20: parse_mutation,
    36: sasl.authenticate_token,
    37: parse_mutation,
    78: _read_share_fetch,
}


def response(data: bytes) -> None:
    """Change a response of the API and version that the first two bytes choose."""
    place, frame = PLACES[int.from_bytes(data[:2], "big") % len(PLACES)], framed(data[2:])
    api = API_TABLE[place[0]]
    if api.throttle_layout(place[1]) is not None:
        throttle_time.patch_throttle(bytearray(frame), *place, 7)
    if api.address_layout(place[1]) is not None:
        rewrite_addresses(*place, frame, _translate)
    _response_readers(place, frame)


def _response_readers(place: tuple[int, int], frame: bytes) -> None:
    api_key, api_version = place
    if api_key == 0:
        list(produce.partition_results(api_version, frame))
    elif api_key == 1:
        fetch_response.fetch_result(api_version, frame, 0)
        fetch_response.rewrite_tail(1, api_version, frame, _translate)
    elif api_key == 3:
        list(iter_topics(api_version, frame))
    elif api_key == 17:
        sasl.handshake_error_code(frame, api_version)
    elif api_key == 18:
        clamp(frame, api_version)
    elif api_key in (19, 20, 37):
        topic_results(api_key, api_version, frame)
    elif api_key == 36:
        sasl.authenticate_result(frame, api_version)
    elif api_key == 78:
        _read_share_fetch_response(api_version, memoryview(frame))
    elif api_key == 88:
        topics_in_the_making(api_version, frame)


def _read_share_fetch_response(api_version: int, frame: memoryview) -> None:
    fetch_response.error_code(78, api_version, frame, 0)
    fetch_response.WithoutRecords().keep(frame, 0, len(frame))
    found = fetch_response.TailFinder(78, len(frame) - 4).find(frame, 0, len(frame))
    if found is not None and found < len(frame):
        fetch_response.rewrite_tail(78, api_version, frame[found:], _translate)


def token(data: bytes) -> None:
    """Read a token of each mechanism that is read."""
    for parse in (sasl.plain_user, sasl.scram_identity, sasl.oauthbearer_subject):
        _guarded(parse, data)


def greeting(data: bytes) -> None:
    """Read what comes before Kafka's own bytes: PROXY heads, TLS hellos, and the subject of a certificate."""
    for parse in (_read_proxy_head, _read_hello, subject_name):
        _guarded(parse, data)


def _read_proxy_head(data: bytes) -> None:
    """Parse a head whose first bytes and length are right and whose rest comes from the input."""
    head = preamble.parse_proxy_head((preamble.SIGNATURE + data[:4]).ljust(16, b"\0"))
    preamble.proxied_source(head, data[4:])


def _read_hello(data: bytes) -> None:
    if preamble.wanted_bytes(data) <= len(data):
        preamble.requested_host(data)


def question(data: bytes) -> None:
    """Read a line that another program may send to the control socket."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(message, dict):
        requests_from_json(message)


def session(data: bytes) -> None:
    """Serve a whole connection: half of the bytes in pieces from the client, the rest from the broker."""
    pair = Pair(quotas=dict.fromkeys(QuotaType, 1000.0))
    size = 1 + data[0] if data else 1
    middle = len(data) // 2
    for at in range(1, len(data), size):
        (pair.send if at < middle else pair.answer)(data[at : at + size])
        pair.advance(100)


class _StillClock:
    """A clock for what is asked once."""

    def now_ms(self) -> int:
        """Return the start."""
        return START_MS


def treated(data: bytes) -> None:
    """Serve a connection whose requests are read whole: a total threshold of nothing, few mutations, errors."""
    rules = EnforcementRules(window=WINDOW, on_violation=OnViolation.ERROR if data[:1] > b"\x7f" else OnViolation.DELAY)
    broker = QuotaRegistry(WINDOW, policies=rules.policies).broker(1)
    topics = TopicFilters(rules, counters=Counters(), notify=lambda _: None, clock=_StillClock())
    topics.thresholds.apply_file(ThresholdSettings(topics={}, totals={None: 1.0}))
    topics.thresholds.broker(1).topics.record("t", 1000, START_MS - 10_000)
    quotas = dict.fromkeys(QuotaType, 10.0)
    pair = Pair(quotas=quotas, rules=rules, broker=broker, factories=topics.factories(1, broker))
    middle = 2 + len(data[2:]) * (data[1] if len(data) > 1 else 0) // 255
    pair.send(data[2:middle])
    pair.answer(data[middle:])
    pair.advance(100)


def cut(content: bytes) -> None:
    """Cut partitions out of a Produce, which can be read again and names the others only."""
    frame = framed(b"\0\0\0" + content)
    header = parse_request_header(frame)
    if header is None or header.api_version not in range(14):
        return
    asked = produce.parse_produce(frame, header)
    refused = {
        key: produce.refused_partition(header.api_version, key[1], error_code=44, message="no")
        for number, key in enumerate(dict.fromkeys(asked.order))
        if number % 2 == 0
    }
    left = produce.without_partitions(frame, header, asked, refused.__contains__)
    if left is not None:
        again = parse_request_header(left)
        assert again is not None
        assert produce.parse_produce(left, again).order == [key for key in asked.order if key not in refused]
    answer = produce.all_refused_partitions(header.api_version, 7, asked.order, refused)
    told = list(produce.partition_results(header.api_version, answer))
    assert {(result.topic, result.partition) for result in told} == refused.keys()


_FOLDER: Final = tempfile.TemporaryDirectory(prefix="fuzz-files-")
atexit.register(_FOLDER.cleanup)


def file(data: bytes) -> None:
    """Read a file of an operator or of a killed daemon: policy, listener, costs, static quotas, state."""
    path = Path(_FOLDER.name) / "file"
    path.write_bytes(data)
    for read in _FILE_READERS:
        _guarded(lambda _, read=read: read(path), data)  # type: ignore[misc]


_FILE_READERS: tuple[Callable[[Path], object], ...] = (
    read_policy_file,
    listener_settings.read_listener,
    cost_file.read_cost_model,
    read_static_quotas,
    read_state,
)


def _guarded(parse: Target, data: bytes) -> None:
    """Let errors of our own pass, so that the next parser gets the same bytes."""
    try:
        parse(data)
    except KafkaQuotasError:
        return


TARGETS: tuple[Target, ...] = (request, response, token, greeting, question, session, treated, cut, file)
"""Chosen by the first byte of an input, modulo their number; new ones go to the end."""
