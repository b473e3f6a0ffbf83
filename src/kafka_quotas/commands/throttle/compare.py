"""One burst in all four algorithms of KIP-599: what formulas promise and what clients experience."""

from dataclasses import dataclass

from kafka_quotas.commands.throttle.mutation import (
    Burst,
    BurstOutcome,
    admits,
    after_burst,
    burst_outcome,
    fresh_limiter,
)
from kafka_quotas.core.quotas.simulation import MUTATION_ALGORITHMS, Algorithm, Event, EventOperation, replay

_EVENLY = 10
"""Rows at even distances between the burst and the end, in addition to the turning points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOutcome:
    """An outcome, and the result for a client that retries a request after each delay."""

    outcome: BurstOutcome
    retries: int | None
    """Retries up to the admitted one, None where the client gave up."""
    retried_ms: int | None
    """Time of the admitted retry after the burst in ms, None where the client gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """The state of each algorithm at one time after the burst."""

    after_ms: int
    """Time after the burst in ms."""
    levels: tuple[float, ...]
    """Tokens, or the rate, of each algorithm."""
    admits: tuple[bool, ...]
    """Whether each algorithm would admit a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmComparison:
    """The burst, its outcomes, and the states over time."""

    burst: Burst
    outcomes: tuple[ComparedOutcome, ...]
    """Outcome per algorithm, in the order of `MUTATION_ALGORITHMS`."""
    states: tuple[StateRow, ...]


def throttle_compare(burst: Burst) -> AlgorithmComparison:
    """Compare the burst in all four algorithms."""
    outcomes = tuple(_compared(burst, algorithm) for algorithm in MUTATION_ALGORITHMS)
    times = _times(burst, tuple(compared.outcome for compared in outcomes))
    return AlgorithmComparison(burst=burst, outcomes=outcomes, states=states_at(burst, times))


def states_at(burst: Burst, times_ms: tuple[int, ...]) -> tuple[StateRow, ...]:
    """Return the states at the given times after the burst (ms)."""
    limiters = [(algorithm, after_burst(burst, algorithm)) for algorithm in MUTATION_ALGORITHMS]
    return tuple(
        StateRow(
            after_ms=after_ms,
            levels=tuple(limiter.level(burst.window_ms + after_ms) for _, limiter in limiters),
            admits=tuple(
                admits(limiter, algorithm, burst.quota, burst.window_ms + after_ms) for algorithm, limiter in limiters
            ),
        )
        for after_ms in times_ms
    )


def _compared(burst: Burst, algorithm: Algorithm) -> ComparedOutcome:
    events = [Event(t_ms=0, amount=burst.partitions), Event(t_ms=0, amount=1.0)]
    limiter = fresh_limiter(burst, algorithm)
    decisions = list(replay(events, limiter, usual=EventOperation.STRICT, origin_ms=burst.window_ms, closed_loop=True))
    last = decisions[-1]
    return ComparedOutcome(
        outcome=burst_outcome(burst, algorithm),
        retries=last.attempt - 1 if last.outcome.admitted else None,
        retried_ms=last.t_ms if last.outcome.admitted else None,
    )


def _times(burst: Burst, outcomes: tuple[BurstOutcome, ...]) -> tuple[int, ...]:
    """Return the times for rows in ms: every turning point, the sample before it, and some evenly."""
    turns = {time for outcome in outcomes for time in (outcome.delay_ms, outcome.admitted_after_ms)}
    size_ms = burst.window.window_ms
    end_ms = max(*turns, size_ms)
    step_ms = max(end_ms // _EVENLY // size_ms, 1) * size_ms
    evenly = range(0, end_ms, step_ms)
    before = {time - size_ms for time in turns if time > size_ms}
    return tuple(sorted({0, *turns, *before, *evenly}))
