"""The responses of CreateTopics, DeleteTopics and CreatePartitions: results by topic, and the insertion of ours.

The broker's results are copied unchanged, including unknown tagged fields.

**Source:** `CreateTopicsResponse.json`, `DeleteTopicsResponse.json`, `CreatePartitionsResponse.json`, Kafka 4.1.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import (
    NO_TOPIC_ID,
    TOPIC_ID_BYTES,
    ElementList,
    Spelling,
    TopicId,
    element_list,
    spelling,
    with_elements,
)
from kafka_quotas.wire.codec.frame import framed
from kafka_quotas.wire.codec.skip import Buffer, Layout, read_int16, read_int32, walk
from kafka_quotas.wire.passing.topic_requests import (
    CREATE_FLEXIBLE_SINCE,
    DELETE_FLEXIBLE_SINCE,
    PARTITIONS_FLEXIBLE_SINCE,
    TopicKey,
)
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.response_header import has_header_tags, whole_response_body


class _Since(NamedTuple):
    """The versions from which on the responses of an API have a field."""

    flexible: int
    throttle: int
    topic_id: int
    message: int
    partitions: int


_SINCE: Final[Mapping[int, _Since]] = {
    ApiKey.CREATE_TOPICS: _Since(CREATE_FLEXIBLE_SINCE, throttle=2, topic_id=7, message=1, partitions=5),
    ApiKey.DELETE_TOPICS: _Since(DELETE_FLEXIBLE_SINCE, throttle=1, topic_id=6, message=5, partitions=NEVER),
    ApiKey.CREATE_PARTITIONS: _Since(
        PARTITIONS_FLEXIBLE_SINCE, throttle=0, topic_id=NEVER, message=0, partitions=NEVER
    ),
}
_NO_DETAILS: Final = (-1).to_bytes(4, "big", signed=True) + (-1).to_bytes(2, "big", signed=True) + b"\1"
"""Partitions and replication factor unknown, no configuration: what a topic that was not made has."""


class TopicResult(NamedTuple):
    """One topic's result."""

    name: str | None
    topic_id: TopicId | None
    error_code: int
    partitions: int | None
    """The partition count; None if the response has none."""
    start: int
    """The offset of the result in the frame."""
    end: int

    @property
    def keys(self) -> tuple[TopicKey, ...]:
        """The keys by which the request may have named the topic."""
        return tuple(key for key in (self.name, self.topic_id) if key is not None)


def topic_results(api_key: int, api_version: int, frame: Buffer) -> tuple[TopicResult, ...]:
    """Return the results of a whole response, in its order.

    Raises:
        ProtocolError: The frame can't be such a response.
    """
    form = spelling(api_version, _SINCE[api_key].flexible)
    listed = _listed(api_key, api_version, form, frame)
    return tuple(_result(api_key, api_version, form, frame, span) for span in listed.spans)


def refused_topic(api_key: int, api_version: int, key: TopicKey, *, error_code: int, message: str) -> bytes:
    """Return the result of a refused topic, with the message if the version has the field."""
    since = _SINCE[api_key]
    form = spelling(api_version, since.flexible)
    pieces = [form.encoded_text(key if isinstance(key, str) else None)]
    if api_version >= since.topic_id:
        pieces.append(key if isinstance(key, bytes) else NO_TOPIC_ID)
    pieces.append(error_code.to_bytes(2, "big"))
    if api_version >= since.message:
        pieces.append(form.encoded_text(message))
    if api_version >= since.partitions:
        pieces.append(_NO_DETAILS)
    return b"".join((*pieces, form.no_tags))


def with_refused(
    api_key: int, api_version: int, frame: Buffer, order: Sequence[TopicKey], refused: Mapping[TopicKey, bytes]
) -> bytes:
    """Return the response with the refused topics' results added, in the order of the request.

    Results of the broker for other topics come last.
    """
    form = spelling(api_version, _SINCE[api_key].flexible)
    listed = _listed(api_key, api_version, form, frame)
    results = [_result(api_key, api_version, form, frame, span) for span in listed.spans]
    by_key = {key: result for result in results for key in result.keys}
    elements: list[Buffer] = []
    taken: set[tuple[int, int]] = set()
    for key in order:
        result = by_key.get(key)
        if key in refused:
            elements.append(refused[key])
        elif result is not None and (result.start, result.end) not in taken:
            taken.add((result.start, result.end))
            elements.append(frame[result.start : result.end])
    elements += [frame[start:end] for start, end in listed.spans if (start, end) not in taken]
    return with_elements(form, frame, listed, elements)


def all_refused(api_key: int, api_version: int, correlation_id: int, results: Sequence[bytes]) -> bytes:
    """Return a whole response of these results, with a throttle time of 0."""
    since = _SINCE[api_key]
    form = spelling(api_version, since.flexible)
    header = correlation_id.to_bytes(4, "big", signed=True)
    header += b"\0" if has_header_tags(api_key, api_version) else b""
    throttle = bytes(4) if api_version >= since.throttle else b""
    return framed(b"".join((header, throttle, form.encoded_count(len(results)), *results, form.no_tags)))


def _listed(api_key: int, api_version: int, form: Spelling, frame: Buffer) -> ElementList:
    since = _SINCE[api_key]
    offset = whole_response_body(api_key, api_version, frame)
    before = 4 if api_version >= since.throttle else 0
    return element_list(form, _element(since, api_version, form), frame, offset + before, len(frame))


def _element(since: _Since, api_version: int, form: Spelling) -> Layout:
    layout: list[Layout] = [(form.string,)]
    if api_version >= since.topic_id:
        layout.append((TOPIC_ID_BYTES,))
    layout.append((2,))
    if api_version >= since.message:
        layout.append((form.string,))
    if api_version >= since.partitions:
        layout.append((4, 2, form.structs(form.string, form.string, 3)))
    layout.append(form.tags)
    return tuple(step for steps in layout for step in steps)


def _result(api_key: int, api_version: int, form: Spelling, frame: Buffer, span: tuple[int, int]) -> TopicResult:
    since = _SINCE[api_key]
    start, end = span
    name, offset = form.text(frame, start, end)
    topic_id: TopicId | None = None
    if api_version >= since.topic_id:
        told = bytes(frame[offset : offset + TOPIC_ID_BYTES])
        topic_id = None if told == NO_TOPIC_ID else told
        offset += TOPIC_ID_BYTES
    error_code = read_int16(frame, offset, end)
    partitions = None
    if api_version >= since.partitions:
        partitions = read_int32(frame, walk((2, form.string), frame, offset, end), end)
    return TopicResult(name, topic_id, error_code, partitions, start, end)
