"""Local times of logs: which hour is meant where clocks go back."""

from zoneinfo import ZoneInfo

import pytest

from kafka_quotas.pipeline.formats.timestamp import LocalClock

HOUR_MS = 3_600_000
FIRST_MS = 1_792_886_400_000  # 2026-10-25 02:00 in Berlin, for the first time; it is there again an hour later


def read(*times: str) -> list[int]:
    """Return each time in ms after the first 02:00 of the night."""
    reader = LocalClock(ZoneInfo("Europe/Berlin"))
    return [reader.read_ms(f"[{each},000]".encode()) - FIRST_MS for each in times]


def night(*times: str) -> list[float]:
    """Return each time of the night in hours after the first 02:00."""
    return [each / HOUR_MS for each in read(*(f"2026-10-25 {each}:00" for each in times))]


def test_the_hour_that_clocks_repeat_is_read_in_the_order_of_the_log() -> None:
    assert night("01:59", "02:00", "02:30", "02:59", "02:00", "02:30", "02:59", "03:00") == pytest.approx(
        [-1 / 60, 0, 0.5, 59 / 60, 1, 1.5, 1 + 59 / 60, 2]
    )


def test_a_gap_within_the_repeated_hour_keeps_it_repeated() -> None:
    assert night("02:50", "02:10", "02:55", "03:20") == pytest.approx([50 / 60, 70 / 60, 115 / 60, 140 / 60])


def test_lines_out_of_order_by_moments_repeat_no_hour() -> None:
    assert night("02:31", "02:30", "02:31") == pytest.approx([31 / 60, 0.5, 31 / 60])


def test_one_line_from_another_year_changes_no_other() -> None:
    times = [f"2026-10-25 {each}:00" for each in ("02:59", "02:10", "02:20")]
    stray = read(times[0], times[1], "2035-01-01 00:00:00", times[2])
    assert [stray[0], stray[1], stray[3]] == read(*times)


def test_clocks_that_go_forward_leave_no_gap() -> None:
    before, after = read("2026-03-29 01:59:59", "2026-03-29 03:00:00")
    assert after - before == 1000
