"""The scan of request logs against the line's parser: equal events, or the line is left to that parser."""

import json
import random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pipeline.logs import request_line, sample_lines

from kafka_quotas.pipeline.formats.request_log import LogOrigin, parse_request_line
from kafka_quotas.pipeline.formats.task import BadLineError, EventRow
from kafka_quotas.pipeline.formats.timestamp import LocalClock
from kafka_quotas.pipeline.ingest.request_scan import ScannedLines, scan_lines, scan_request_lines

ORIGIN = LogOrigin(cluster="c", broker_id=1, src_file="f")
OFFSET = 70_000
SAMPLES = [*sample_lines(1)[::23], *sample_lines(2)[::23]]


def scan(lines: list[bytes]) -> ScannedLines:
    content = b"".join(line + b"\n" for line in lines)
    return scan_request_lines(content, offset=OFFSET, clock=LocalClock(ZoneInfo("Europe/Berlin")), origin=ORIGIN)


def check(lines: list[bytes]) -> ScannedLines:
    """Compare with the parser, line by line in the order of the log, what the scan does not leave to it."""
    clock = LocalClock(ZoneInfo("Europe/Berlin"))
    scanned, expected, forwarded, offset = scan(lines), [], 0, OFFSET
    odd = {start for _, start, _ in scanned.odd}
    assert [lines_at(lines, start) for _, start, _ in scanned.odd] == [content for *_, content in scanned.odd]
    for line in lines:
        if line and offset - OFFSET not in odd:
            row = parse_request_line(line, offset=offset, clock=clock, origin=ORIGIN)
            forwarded += row is None
            expected += [row] if row is not None else []
        offset += len(line) + 1
    assert [EventRow(**row) for row in scanned.events.to_pylist()] == expected
    assert (scanned.forwarded, scanned.lines, scanned.blank) == (forwarded, len(lines), lines.count(b""))
    return scanned


def lines_at(lines: list[bytes], start: int) -> bytes:
    content = b"".join(line + b"\n" for line in lines)
    return content[start : content.index(b"\n", start)]


def is_refused(line: bytes) -> bool:
    try:
        parse_request_line(line, offset=0, clock=LocalClock(ZoneInfo("UTC")), origin=ORIGIN)
    except BadLineError:
        return True
    return False


@pytest.mark.parametrize("broker_id", [1, 2], ids=["4.3.1", "3.9.2"])
def test_it_takes_every_line_that_real_brokers_wrote(broker_id: int) -> None:
    assert check(sample_lines(broker_id)).odd == ()


def written(entry: Any) -> bytes:
    return b"[2026-11-21 12:00:00,500] DEBUG Completed request:" + json.dumps(entry, separators=(",", ":")).encode()


def parts(line: bytes) -> Any:
    return json.loads(line[line.index(b"{") : line.rindex(b"}") + 1])


TEXTS = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def changed_entries(draw: st.DrawFn) -> bytes:
    """A real entry with members changed, added, left out and in another order, at any depth."""
    entry = parts(draw(st.sampled_from(SAMPLES)))
    chance = draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(1, 3))):
        place = random_object(entry, chance)
        name = draw(st.sampled_from([*place, "unknown"])) if place else "unknown"
        action = draw(st.sampled_from(("change", "drop", "shuffle", "repeat")))
        if action == "change":
            place[name] = draw(VALUES)
        elif action == "drop":
            place.pop(name, None)
        elif action == "shuffle":
            members = list(place.items())
            chance.shuffle(members)
            place.clear()
            place.update(members)
        elif isinstance(found := place.get(name), list):
            found.extend(found[:1])
    return written(entry)


def random_object(entry: Any, chance: random.Random) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            found.append(value)
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            visit(each)

    visit(entry)
    return chance.choice(found)


@settings(max_examples=150, deadline=None)
@given(st.lists(changed_entries(), min_size=1, max_size=4))
def test_entries_with_members_changed_added_dropped_and_reordered(lines: list[bytes]) -> None:
    check(lines)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SAMPLES),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=3),
)
def test_lines_cut_and_overwritten_anywhere(line: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    for place, dropped, added in edits:
        line = line[: place % len(line)] + added.replace(b"\n", b"") + line[place % len(line) + dropped :]
    check([line, SAMPLES[0]])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SAMPLES), st.integers(0, 1500))
def test_a_line_that_ends_too_early_is_left_to_the_parser(line: bytes, size: int) -> None:
    cut = line[: size % line.rindex(b"}")]
    assert not cut or ((scan([cut]).odd and is_refused(cut)) or not cut.strip())


@pytest.mark.parametrize(
    "stamp",
    [
        "[2026-11-21T12:00:00.500]",
        "[2026-11-21 12:00:00,500Z]",
        "[2026-11-21 12:00:00,500+05:30]",
        "[2026-11-21 12:00:00,500-0330]",
        "[2028-02-29 23:59:59,999]",
        "[0001-01-02 00:00:00,000]",
        "[9999-12-30 23:59:59,999]",
    ],
)
def test_timestamps_are_the_parsers(stamp: str) -> None:
    assert check([request_line(stamp=stamp).encode().rstrip(b"\n")]).odd == ()


@pytest.mark.parametrize(
    "stamp",
    ["[2026-02-29 12:00:00,500]", "[2026-11-21 24:00:00,500]", "[2026-11-21 12:00:60,500]", "12:00:00", "[", ""],
)
def test_impossible_timestamps_are_left_to_the_parser(stamp: str) -> None:
    assert len(check([request_line(stamp=stamp).encode().rstrip(b"\n")]).odd) == 1


def test_followers_of_both_generations_are_exempt() -> None:
    response = {"throttleTimeMs": 0, "errorCode": 0, "responses": []}
    lines = [
        request_line(api_key=1, version=version, request=request, response=response).encode().rstrip(b"\n")
        for version, request in (
            (11, {"replicaId": 2}),
            (16, {"replicaState": {"replicaId": 2}}),
            (11, {"replicaId": -1}),
        )
    ]
    scanned = check(lines)
    assert scanned.odd == ()
    assert scanned.events["is_exempt"].to_pylist() == [True, True, False]


def test_the_same_machine_code_reads_what_may_be_written_and_what_may_not() -> None:
    content = SAMPLES[0] + b"\n"
    clock = LocalClock(ZoneInfo("UTC"))
    scans = [
        scan_request_lines(each, offset=0, clock=clock, origin=ORIGIN)
        for each in (content, memoryview(content), memoryview(bytearray(content)))
    ]
    assert scans[0].events.num_rows > 0
    assert all(each.events.equals(scans[0].events) for each in scans)
    assert len(scan_lines.signatures) == 1  # type: ignore[attr-defined] - numba's own
