"""Event files: both forms, and every way in which a line can be wrong, named with its file and number."""

from pathlib import Path

import pytest

from kafka_quotas.cli.options.windows import agreed
from kafka_quotas.commands.throttle.simulate import (
    LONGEST_LINE,
    MOST_POINTS,
    Course,
    EventFormat,
    Simulation,
    SimulationSummary,
    read_events,
    simulate,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation


def events(path: Path, content: str | bytes, **options) -> list[Event]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_events(str(path), **options))


def test_both_forms_give_the_same_events(tmp_path: Path) -> None:
    expected = [
        Event(t_ms=0, amount=15e6, operation=None),
        Event(t_ms=1500, amount=0.5, operation=EventOperation.UNRECORD),
        Event(t_ms=1000, amount=0, operation=EventOperation.CHECK),
    ]
    lines = '{"t_ms": 0, "amount": "15MB"}\n\n{"amount": 0.5, "t_ms": 1500, "op": "unrecord"}\n'
    lines += '{"t_ms": 1000, "amount": 0, "op": "check"}'
    assert events(tmp_path / "e.jsonl", lines) == expected
    table = "\ufeffop, amount ,t_ms\r\n,15MB,0\r\nunrecord,0.5,1500\r\n\r\ncheck,0,1000\r\n"
    assert events(tmp_path / "e.csv", table) == expected
    assert events(tmp_path / "e.txt", lines) == events(tmp_path / "f.txt", table) == expected
    assert events(tmp_path / "g.csv", lines, form=EventFormat.JSONL) == expected


WRONG_JSON = [
    ("{", "not JSON: Expecting property name"),
    ("[1, 2]", "not a JSON object"),
    ("7", "not a JSON object"),
    ('{"t_ms": 0}', "no amount"),
    ('{"amount": 0}', "no t_ms"),
    ('{"t_ms": 0.5, "amount": 1}', "t_ms must be a whole number of milliseconds, not 0.5"),
    ('{"t_ms": true, "amount": 1}', "t_ms must be a whole number"),
    ('{"t_ms": "1_0", "amount": 1}', "t_ms must be a whole number"),
    ('{"t_ms": 1e400, "amount": 1}', "t_ms must be a whole number of milliseconds, not inf"),
    ('{"t_ms": 99999999999999999999, "amount": 1}', "t_ms must be a whole number"),
    ('{"t_ms": 0, "amount": -1}', "amount must be a finite number and not negative, not -1"),
    ('{"t_ms": 0, "amount": NaN}', "amount must be a finite number"),
    ('{"t_ms": 0, "amount": null}', "amount must be a finite number and not negative, not None"),
    ('{"t_ms": 0, "amount": [1]}', "amount must be a finite number and not negative, not list"),
    ('{"t_ms": 0, "amount": "many"}', "amount must be a finite number"),
    ('{"t_ms": 0, "amount": "1e999"}', "amount must be a finite number"),
    ('{"t_ms": 0, "amount": 1' + "0" * 400 + "}", "amount must be a finite number"),
    ('{"t_ms": 0, "amount": 1' + "0" * 5000 + "}", "not JSON: figures or depth"),
    ("[" * 60_000, "not JSON"),
    ('{"t_ms": 0, "amount": 1, "op": "pay"}', "op must be one of record, record_nocheck"),
    ('{"t_ms": 0, "amount": 1, "op": {}}', "op must be one of"),
    ('{"t_ms": 0, "amount": 1, "user": "alice"}', "unknown column 'user'"),
    ("x" * (LONGEST_LINE + 1), "longer than 65536 bytes"),
]


@pytest.mark.parametrize(("line", "message"), WRONG_JSON, ids=[message for _, message in WRONG_JSON])
def test_a_wrong_line_of_json_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "e.jsonl"
    with pytest.raises(UsageError) as caught:
        events(path, '{"t_ms": 0, "amount": 1}\n\n' + line + "\n")
    assert caught.value.message.startswith(f"{path}, line 3: {message}")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


WRONG_CSV = [
    ("0,1\n", "line 1: no t_ms and no amount"),
    ("t_ms\n0\n", "line 1: no amount"),
    ("t_ms,amount,t_ms\n0,1,2\n", "line 1: a column is named twice"),
    ("t_ms,amount,bytes\n0,1,2\n", "line 1: unknown column 'bytes'"),
    ('t_ms,amount\n0,1\n0,"1\n', "line 3: not CSV"),
    ("t_ms,amount\n0,1,2\n", "line 2: 3 fields under 2 columns"),
    ("t_ms,amount\n0,1\n\n1;2\n", "line 4: 1 fields under 2 columns"),
    ("t_ms,amount\n,1\n", "line 2: t_ms must be a whole number of milliseconds, not ''"),
    ("t_ms,amount,op\n0,1,strictly\n", "line 2: op must be one of"),
]


@pytest.mark.parametrize(("content", "message"), WRONG_CSV, ids=[message for _, message in WRONG_CSV])
def test_a_wrong_line_of_csv_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "e.csv"
    with pytest.raises(UsageError) as caught:
        events(path, content)
    assert caught.value.message.startswith(f"{path}, {message}")


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        events(tmp_path / "e.csv", b"t_ms,amount\n0,\xff\n")
    with pytest.raises(UsageError, match="has no events"):
        events(tmp_path / "e.csv", "\n\n")
    with pytest.raises(UsageError, match="Is a directory"):
        list(read_events(str(tmp_path)))
    with pytest.raises(UsageError, match="No such file"):
        list(read_events(str(tmp_path / "missing.csv")))


def test_operations_that_an_algorithm_does_not_take_are_refused_where_they_stand(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 2: op must be one of strict, check, not 'record'"):
        events(
            tmp_path / "e.csv", "t_ms,amount,op\n0,1,record\n", allowed=(EventOperation.STRICT, EventOperation.CHECK)
        )


def test_a_long_replay_keeps_a_bounded_course_with_its_peaks() -> None:
    plan = Simulation(algorithm=Algorithm.RATE, quota=1000.0, window=QuotaWindow())
    many = (Event(t_ms=t_ms, amount=50_000 if t_ms == 12_345 else 0.5) for t_ms in range(25_000))
    tally, course = SimulationSummary(least_ms=plan.window.window_ms), Course()
    for decision in simulate(plan, many):
        tally.add(decision)
        course.add(decision)
    points = course.points()
    assert MOST_POINTS / 2 <= len(points) <= MOST_POINTS
    assert max(point.outcome.throttle_ms for point in points) == tally.longest_delay_ms > 0
    assert tally.decisions == 25_000
    assert (points[0].t_ms <= 16, points[-1].t_ms >= 24_980) == (True, True)


def test_totals_count_what_was_admitted_less_what_was_taken_back() -> None:
    plan = Simulation(algorithm=Algorithm.RATE, quota=10.0, window=QuotaWindow())
    tally = SimulationSummary(least_ms=plan.window.window_ms)
    for decision in simulate(
        plan,
        [
            Event(t_ms=0, amount=100),
            Event(t_ms=0, amount=40, operation=EventOperation.UNRECORD),
            Event(t_ms=500, amount=7, operation=EventOperation.CHECK),
        ],
    ):
        tally.add(decision)
    assert (tally.amount, tally.mean_rate, tally.highest_level) == (60, 60, 10)


def test_brokers_must_agree_on_the_window() -> None:
    source = agreed({1: {"quota.window.num": "5"}, 2: {"quota.window.num": "5"}}, "kafka://host:9092")
    assert source == ("brokers of kafka://host:9092", {"quota.window.num": "5"})
    with pytest.raises(UsageError, match="5 on broker 1, 3 on broker 2") as caught:
        agreed({1: {"quota.window.num": "5"}, 2: {"quota.window.num": "3"}}, "kafka://host:9092")
    assert caught.value.hint == "choose one with --quota-window-num"
