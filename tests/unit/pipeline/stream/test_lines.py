"""Lines of a stream as charges: the scan against the line's parser, and what is set aside."""

import json
import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from tests.support.pipeline.events import BASE_MS, events_table

from kafka_quotas.pipeline.stream import lines
from kafka_quotas.pipeline.stream.lines import (
    AHEAD_MS,
    CHARGES,
    UNREADABLE,
    ReadEvents,
    parsed_lines,
    read_lines,
    read_packed,
)
from kafka_quotas.pipeline.tables.packed_events import pack

LINE: dict[str, Any] = {
    "v": 1,
    "ts_ms": BASE_MS,
    "cluster": "c",
    "broker_id": 1,
    "connection": 17,
    "user": "alice",
    "client_id": "app",
    "ip": "10.0.0.7",
    "quota_type": "request",
    "api_key": 0,
    "bytes": 65_600,
    "thread_ms": 1.25,
    "mutations": 0,
    "throttle_ms": 120,
    "is_exempt": False,
}
VALUES: dict[str, tuple[Any, ...]] = {
    "v": (1, 2, 1.0, "1", None),
    "ts_ms": (BASE_MS, 0, 253_402_300_799_998, 253_402_300_799_999, 10**18, 1.5, "1", True),
    "cluster": ("c", "", "ü", 'quo"te', 7),
    "broker_id": (1, 0, None, 2**31 - 2, 2**31 - 1, -1, "1"),
    "connection": (0, "c-1", 1.5, None),
    "user": ("alice", "alick", "ali", "", "User:CN=a\\b", None),
    "client_id": ("app", "a b", "\n", []),
    "ip": ("10.0.0.7", "", "::1", 4),
    "quota_type": ("produce", "fetch", "request", "controller_mutation", "request_rate", "product", ""),
    "api_key": (0, 2**15 - 1, 2**15, "0"),
    "bytes": (0, 10**17, 10**18, 2**62 - 1, 2**62, 1.0),
    "thread_ms": (0, 0.125, 12, 1e-7, 1.5e9, "1", None),
    "mutations": (0, 2**31 - 2, 2**31 - 1, False),
    "throttle_ms": (0, 1, 10**15, None),
    "is_exempt": (True, False, "true", 0, None),
}
EXTRA = ("", '"vv":1,', '"more":{"a":[1,"}"]},', '"user":"again",', " ")


def batch(lines: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([lines], ["value"])


def as_bytes(fields: dict[str, Any], *, extra: str = "") -> bytes:
    return b"{" + extra.encode() + json.dumps(fields, separators=(",", ":")).encode()[1:]


def made_up(seed: int) -> list[bytes | None]:
    """Lines with values of every kind, some in another order, cut, or with more fields."""
    chance = random.Random(seed)
    found: list[bytes | None] = [None, b"", b"{}", b"[]", b'{"v":1}']
    for _ in range(300):
        fields = dict(LINE)
        for name in chance.sample(sorted(VALUES), chance.choice((0, 0, 1, 2))):
            fields[name] = chance.choice(VALUES[name])
        if chance.random() < 0.2:
            fields = dict(chance.sample(sorted(fields.items()), len(fields) - chance.choice((0, 0, 1))))
        line = as_bytes(fields, extra=chance.choice(EXTRA) if chance.random() < 0.2 else "")
        found.append(line[: chance.randrange(len(line))] if chance.random() < 0.1 else line)
    return found


def joined(parts: Iterable[ReadEvents]) -> ReadEvents:
    """All that was read, as one."""
    none = ReadEvents(CHARGES.empty_table(), UNREADABLE.empty_table())
    return ReadEvents(*(pa.concat_tables(each) for each in zip(none, *parts, strict=True)))


def read(*columns: list[bytes | None]) -> ReadEvents:
    return joined(read_lines(batch(pa.array(each, pa.binary())) for each in columns))


def parsed(*columns: list[bytes | None]) -> ReadEvents:
    return joined(map(parsed_lines, columns))


@pytest.mark.parametrize("seed", range(8))
def test_the_scan_gives_what_the_parser_gives(seed: int) -> None:
    given = made_up(seed)
    require_equal(read(given, given[::-1]), parsed(given, given[::-1]))
    assert 60 < read(given, given).charges.num_rows < 2 * len(given) - 60


def test_the_parser_reads_a_line_of_an_unknown_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[bytes]] = []
    monkeypatch.setattr(lines, "parsed_lines", lambda odd: asked.append(odd) or parsed_lines(odd))
    known, unknown = as_bytes(LINE), as_bytes(LINE | {"quota_type": "product"})
    found = read([known, b"{}", known, unknown, known])
    assert asked == [[b"{}", unknown]]
    assert (found.charges.num_rows, found.unreadable.num_rows) == (3, 2)


def require_equal(found: ReadEvents, expected: ReadEvents) -> None:
    assert found.unreadable.equals(expected.unreadable)
    assert sorted(found.charges.to_pylist(), key=repr) == sorted(expected.charges.to_pylist(), key=repr)
    assert found.charges.schema == CHARGES


def test_part_of_an_array_is_read_as_it_is() -> None:
    given = made_up(9)
    require_equal(joined(read_lines([batch(pa.array(given, pa.binary()).slice(7, 40))])), parsed(given[7:47]))
    assert read([]).charges.num_rows == 0


def charges(*times_ms: int) -> ReadEvents:
    return read([as_bytes(LINE | {"ts_ms": each}) for each in times_ms])


def test_an_event_from_the_future_is_set_aside() -> None:
    nine_years_ms = 9 * 365 * 86_400_000
    read = charges(BASE_MS, BASE_MS + nine_years_ms, BASE_MS + AHEAD_MS)
    kept, refused = lines.without_future(read, BASE_MS)
    assert kept["ts_ms"].to_pylist() == [BASE_MS, BASE_MS + AHEAD_MS]
    assert refused["reason"].to_pylist() == ["its time is 283,824,000 s in the future"]
    assert str(BASE_MS + nine_years_ms) in refused["raw"].to_pylist()[0]
    assert lines.without_future(charges(BASE_MS + AHEAD_MS + 1), BASE_MS).unreadable.num_rows == 1


def test_packed_rows_are_read_as_their_events() -> None:
    events = events_table([{"bytes": 5}, {"bytes": 6, "user": "bob"}])
    found = joined(read_packed([pack(events)]))
    assert sorted(found.charges.to_pylist(), key=repr) == sorted(events.select(CHARGES.names).to_pylist(), key=repr)
    assert found.charges.schema == CHARGES
    assert found.unreadable.equals(UNREADABLE.empty_table())
