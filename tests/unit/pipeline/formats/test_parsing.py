"""Lines into rows: both forms of the request log, the daemon's log, and whatever else lies in a log folder."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.support.pipeline.logs import request_line, sample_entries, sample_lines

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.control.decision_service import NO_API
from kafka_quotas.enforcement.event_log.charges import ChargeSource, charge_line
from kafka_quotas.enforcement.quotas.quota_registry import Route
from kafka_quotas.pipeline.formats.event_log import parse_daemon_line
from kafka_quotas.pipeline.formats.request_log import LogOrigin, parse_request_line
from kafka_quotas.pipeline.formats.task import BadLineError, EventRow
from kafka_quotas.pipeline.formats.timestamp import LocalClock

NOON_MS = 1_795_262_400_000  # 2026-11-21 12:00 UTC


def parse(line: str | bytes, *, zone: str | None = "UTC") -> EventRow | None:
    content = line.encode() if isinstance(line, str) else line
    origin = LogOrigin(cluster="c", broker_id=1, src_file="f")
    clock = LocalClock(ZoneInfo(zone) if zone else None)
    return parse_request_line(content.rstrip(b"\n"), offset=7, clock=clock, origin=origin)


def parsed(line: str | bytes, *, zone: str | None = "UTC") -> EventRow:
    row = parse(line, zone=zone)
    assert row is not None
    return row


@pytest.mark.parametrize("broker_id", [1, 2], ids=["4.3.1", "3.9.2"])
def test_every_line_of_both_real_logs_is_an_event_with_the_figures_of_its_json(broker_id: int) -> None:
    rows = [parsed(line) for line in sample_lines(broker_id)]
    entries = sample_entries(broker_id)
    for row, entry in zip(rows, entries, strict=True):
        assert row.user == entry["principal"].removeprefix("User:")
        assert row.client_id == entry["requestHeader"]["clientId"]
        assert row.throttle_ms == entry["throttleTimeMs"]
        assert row.thread_ms == pytest.approx(entry["localTimeMs"])
        assert row.ip == "127.0.0.1"
        assert row.is_thread_estimated
    assert sum(row.throttle_ms for row in rows) > 10_000  # both logs were taken with quotas in force


@pytest.mark.parametrize("broker_id", [1, 2], ids=["4.3.1", "3.9.2"])
def test_bytes_are_those_of_the_records_and_a_little_framing(broker_id: int) -> None:
    checked: Counter[str] = Counter()
    for line, entry in zip(sample_lines(broker_id), sample_entries(broker_id), strict=True):
        row = parsed(line)
        if row.quota_type == "produce":
            records = _records(entry["request"]["topicData"], "partitionData")
        elif row.quota_type == "fetch" and entry["response"]["responses"]:
            records = _records(entry["response"]["responses"], "partitions")
        else:
            assert row.quota_type == "fetch" or (row.bytes, row.is_estimated) == (0, False)
            continue
        checked[row.quota_type] += 1
        assert row.is_estimated
        assert records < row.bytes <= records + 300
    assert checked["produce"] > 300
    assert checked["fetch"] > 50


def _records(topics: list[dict[str, Any]], partitions: str) -> int:
    return sum(each["recordsSizeInBytes"] for topic in topics for each in topic[partitions])


def test_a_throttled_fetch_is_charged_nothing_for_brokers_take_it_back() -> None:
    response = {"throttleTimeMs": 544, "errorCode": 0, "sessionId": 0, "responses": []}
    row = parsed(request_line(api_key=1, version=16, response=response, throttle_ms=544))
    assert (row.quota_type, row.bytes, row.throttle_ms) == ("fetch", 0, 544)


def test_an_event_happened_before_its_response_was_queued_and_sent() -> None:
    assert parsed(request_line(stamp="[2026-11-21 12:00:00,500]")).ts_ms == NOON_MS + 500 - 100


@pytest.mark.parametrize(
    ("stamp", "zone", "expected_ms"),
    [
        ("[2026-11-21 13:00:00,000]", "Europe/Berlin", NOON_MS),
        ("[2026-11-21 12:00:00,007]", "UTC", NOON_MS + 7),
        ("2026-11-21T14:00:00.000+02:00", None, NOON_MS),
        ("2026-11-21T12:00:00.5Z", None, NOON_MS + 500),
        # Clocks are put back at 03:00 on 2026-10-25: 02:30 is there twice, and the first one is meant.
        ("[2026-10-25 02:30:00,000]", "Europe/Berlin", 1_792_888_200_000),
    ],
)
def test_stamps_are_read_in_their_zone(stamp: str, zone: str | None, expected_ms: int) -> None:
    reader = LocalClock(ZoneInfo(zone) if zone else None)
    assert reader.read_ms(stamp.encode()) == expected_ms
    assert reader.read_ms(stamp.encode()) == expected_ms  # the second time from what is remembered


def test_a_request_that_was_forwarded_is_logged_by_the_broker_that_did_as_well() -> None:
    assert parse(request_line(forwarded=True)) is None


def creation(topic: str, *, client_id: str) -> str:
    """A line of a topic's creation."""
    asked = {"topics": [{"name": topic, "numPartitions": 1, "assignments": []}], "validateOnly": False}
    answered = {"throttleTimeMs": 0, "topics": [{"name": topic, "errorCode": 0, "numPartitions": 1}]}
    return request_line(api_key=19, version=7, request=asked, response=answered, client_id=client_id)


@pytest.mark.parametrize(
    ("line", "exempt"),
    [
        (request_line(api_key=63), True),
        (creation("__consumer_offsets", client_id="1"), True),  # what a broker makes for itself, in its own name
        (creation("__consumer_offsets", client_id="app"), False),
        (creation("orders", client_id="1"), False),
        (
            request_line(
                api_key=1, request={"replicaState": {"replicaId": 2}}, response={"throttleTimeMs": 0, "responses": []}
            ),
            True,
        ),
        (request_line(api_key=1, request={"replicaId": 3}, response={"throttleTimeMs": 0, "responses": []}), True),
        (request_line(api_key=1, request={"replicaId": -1}, response={"throttleTimeMs": 0, "responses": []}), False),
        (request_line(api_key=3), False),
    ],
)
def test_traffic_of_brokers_is_exempt(line: str, exempt: bool) -> None:
    assert parsed(line).is_exempt is exempt


CREATED = {"name": "a", "errorCode": 0, "numPartitions": 6}


@pytest.mark.parametrize(
    ("api_key", "request_", "response", "expected"),
    [
        (19, {"topics": [{"name": "a", "numPartitions": 6}]}, {"topics": [CREATED]}, (6, False)),
        (19, {"topics": [{"name": "a", "numPartitions": -1}]}, {"topics": [{"name": "a", "errorCode": 0}]}, (1, True)),
        (19, {"topics": [{"name": "a", "numPartitions": 6}]}, {"topics": [CREATED | {"errorCode": 89}]}, (0, False)),
        (19, {"topics": [{"name": "a", "numPartitions": 6}], "validateOnly": True}, {"topics": [CREATED]}, (0, False)),
        (20, {"topicNames": ["a", "b"]}, {"responses": [{"errorCode": 0}, {"errorCode": 3}]}, (1, True)),
        (
            37,
            {"topics": [{"name": "a", "assignments": [{}, {}]}]},
            {"results": [{"name": "a", "errorCode": 0}]},
            (2, False),
        ),
    ],
)
def test_mutations_are_partitions_of_what_was_accepted(
    api_key: int, request_: Mapping[str, Any], response: Mapping[str, Any], expected: tuple[int, bool]
) -> None:
    row = parsed(request_line(api_key=api_key, request=request_, response=response))
    assert row.quota_type == "controller_mutation"
    assert (row.mutations, row.is_estimated) == expected


LINE = request_line()
PRODUCED = {"transactionalId": None}
HALF_A_BYTE = {"name": "t", "partitionData": [{"index": 0, "recordsSizeInBytes": 0.5}]}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[2026-11-21 12:00:00,500] INFO started (kafka.server)", "not a line of the request log"),
        (LINE[:400], "broken JSON"),
        (LINE[:200] + LINE, "broken JSON"),  # one line was cut, and the next written behind it
        (LINE.replace("[2026", "[2O26"), "no time stamp"),
        (LINE.replace("2026-11-21 ", "2026-13-21 "), "not a time"),
        (LINE.replace('"clientId":"app"', '"clientId":7'), "another kind"),
        (LINE.replace('"connection"', '"connected"'), "lacks connection"),
        (LINE.replace('"localTimeMs":0.25', '"localTimeMs":-3'), "out of range"),
        (LINE.replace('"throttleTimeMs":0,"resp', '"throttleTimeMs":1e30,"resp'), "out of range"),
        (LINE.encode().replace(b"alice", b"al\xffce"), "not UTF-8"),
        (LINE.replace('"requestApiKey":3', '"requestApiKey":70000'), "not a number"),
        (LINE.replace('"requestApiKey":3', '"requestApiKey":3.0'), "not a number"),
        (LINE.replace('"sendTimeMs":0.4', '"sendTimeMs":1e18'), "out of range"),
        (request_line(api_key=0, request=PRODUCED | {"topicData": [HALF_A_BYTE]}), "another kind"),
        (request_line(api_key=0, request=PRODUCED | {"topicData": 5}), "another kind"),
        ("Completed request:[{}]", "broken JSON"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(line: str | bytes, reason: str) -> None:
    with pytest.raises(BadLineError, match=reason):
        parse(line)


def test_a_stamp_without_a_zone_is_refused_where_none_was_given() -> None:
    with pytest.raises(BadLineError, match="no zone"):
        parse(LINE, zone=None)


@pytest.mark.parametrize("quota_type", list(QuotaType))
def test_what_the_daemon_writes_is_what_is_read(quota_type: QuotaType) -> None:
    route = Route(node_id=3, port=1, upstream=Address(host="h", port=1))
    source = ChargeSource(connection=17, ip="10.0.0.7", route=route)
    line = charge_line("prod", source, (NOON_MS, "al ice\n", "äpp", quota_type, 5, 12, 120, False))
    row = parse_daemon_line(line.rstrip("\n").encode(), offset=9, src_file="f")
    assert (row.cluster, row.broker_id, row.ts_ms, row.user, row.client_id) == ("prod", 3, NOON_MS, "al ice\n", "äpp")
    assert (row.connection, row.ip, row.api_key, row.throttle_ms) == ("17", "10.0.0.7", 5, 120)
    assert not row.is_estimated  # the daemon counts bytes, it does not guess
    amounts = {
        QuotaType.PRODUCE: (12, None, 0),
        QuotaType.FETCH: (12, None, 0),
        QuotaType.REQUEST: (0, 12.0, 0),
        QuotaType.CONTROLLER_MUTATION: (0, None, 12),
    }
    assert row.quota_type == quota_type.value
    assert (row.bytes, row.thread_ms, row.mutations) == amounts.get(quota_type, (0, None, 0))


def test_what_another_program_had_charged_is_an_event_without_an_api() -> None:
    route = Route(node_id=3, port=1, upstream=Address(host="h", port=1))
    line = charge_line(
        "c", ChargeSource(connection=1, ip="i", route=route), (1, "u", "a", QuotaType.PRODUCE, NO_API, 5, 0, False)
    )
    row = parse_daemon_line(line.encode(), offset=0, src_file="f")
    assert (row.api_key, row.bytes) == (-1, 5)


@pytest.mark.parametrize(
    ("quota_type", "api_key"),
    [(QuotaType.FETCH, 1), (QuotaType.PRODUCE, NO_API), (QuotaType.CONTROLLER_MUTATION, NO_API)],
)
def test_what_is_given_back_is_an_event_below_0(quota_type: QuotaType, api_key: int) -> None:
    """A fetch that is answered empty, and what another program takes back."""
    source = ChargeSource(connection=1, ip="i", route=Route(node_id=3, port=1, upstream=Address(host="h", port=1)))
    line = charge_line("c", source, (1, "u", "a", quota_type, api_key, -5, 0, False))
    row = parse_daemon_line(line.encode(), offset=0, src_file="f")
    assert row.bytes + row.mutations == -5


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'"x":' + b"[" * 5000 + b"]" * 5000, "broken JSON"),
        (b'"ip":"\xff"', "not UTF-8"),
        (b'"v":1,,', "broken JSON"),
    ],
    ids=["deep", "bytes", "comma"],
)
def test_what_is_no_json_is_one_reason_wherever_it_broke(broken: bytes, reason: str) -> None:
    reasons = set()
    for before in (b"", b" " * 7):
        with pytest.raises(BadLineError) as caught:
            parse_daemon_line(b"{" + before + broken + b"}", offset=0, src_file="f")
        reasons.add(str(caught.value))
    (found,) = reasons
    assert found.startswith(reason)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"api_key": -2},
        {"api_key": "0"},
        {"bytes": -1},
        {"bytes": 2**70},
        {"user": None},
        {"quota_type": "odd"},
        {"ts_ms": "1"},
        {"is_exempt": 0},
    ],
)
def test_an_event_of_the_daemon_with_another_kind_of_field_is_refused(change: Mapping[str, Any]) -> None:
    route = Route(node_id=3, port=1, upstream=Address(host="h", port=1))
    line = charge_line(
        "c", ChargeSource(connection=1, ip="i", route=route), (1, "u", "a", QuotaType.PRODUCE, 0, 5, 0, False)
    )
    entry = json.loads(line) | change
    with pytest.raises(BadLineError):
        parse_daemon_line(json.dumps(entry).encode(), offset=0, src_file="f")
