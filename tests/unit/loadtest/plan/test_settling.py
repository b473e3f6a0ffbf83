"""How long a client takes to come down to a quota that was lowered under it, on traces whose answer is known."""

from kafka_quotas.loadtest.plan.throttle_cycles import settling_ms

CHANGED_MS = 10_000.0
QUOTA = 1e6
Trace = list[tuple[float, int]]


def settled(acks: Trace) -> float | None:
    return settling_ms(acks, from_ms=CHANGED_MS, quota=QUOTA, window_ms=3000)


def burst(at_ms: float, amount: int, *, length_ms: int = 500) -> Trace:
    """Amounts of equal size every 10 ms from `at_ms` on."""
    count = length_ms // 10
    return [(at_ms + 10 * step, amount // count) for step in range(count)]


BEFORE = burst(8_000, 4_000_000, length_ms=2_000)
LATE = burst(10_000, 1_000_000)
"""What the client still took until the new quota reached it."""
CYCLES = [each for start in range(12_000, 24_000, 3_000) for each in burst(start, 3_000_000)]


def test_a_pause_after_which_the_quota_holds_settles_it() -> None:
    assert settled([*BEFORE, *LATE, *CYCLES]) == 2_000


def test_a_pause_after_which_it_does_not_yet_hold_does_not() -> None:
    later = [(t_ms + 3_000, size) for t_ms, size in CYCLES]

    assert settled([*BEFORE, *LATE, *burst(11_500, 4_000_000), *later]) == 5_000


def test_a_client_that_is_not_held_never_settles() -> None:
    assert settled([*BEFORE, *burst(10_000, 20_000_000, length_ms=10_000)]) is None
    twice = [each for start in range(12_000, 24_000, 1_500) for each in burst(start, 3_000_000)]
    assert settled([*BEFORE, *twice]) is None


def test_a_client_without_answers_never_settles() -> None:
    assert settled(BEFORE) is None


def test_a_client_below_the_new_quota_has_settled_at_once() -> None:
    assert settled([(CHANGED_MS + 1_000 * second, 500_000) for second in range(1, 10)]) == 0
