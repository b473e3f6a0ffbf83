"""One burst in all four algorithms of KIP-599, side by side: what formulas promise and what clients live through."""

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
"""So many rows of the state over time lie evenly between the burst and the end; the turning points come on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOutcome:
    """An outcome, and how a client fares that repeats a request whenever the delay it was told is over.

    `retries` counts its repetitions up to the one that was admitted, `retried_ms` after the burst; None where it gave
    up.
    """

    outcome: BurstOutcome
    retries: int | None
    retried_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """The level of each algorithm (tokens, else a rate) so long after the burst, and whether it would admit."""

    after_ms: int
    levels: tuple[float, ...]
    admits: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmComparison:
    """The burst, its outcome per algorithm in the order of `MUTATION_ALGORITHMS`, and the states over time."""

    burst: Burst
    outcomes: tuple[ComparedOutcome, ...]
    states: tuple[StateRow, ...]


def throttle_compare(burst: Burst) -> AlgorithmComparison:
    """The burst in all four algorithms."""
    outcomes = tuple(_compared(burst, algorithm) for algorithm in MUTATION_ALGORITHMS)
    times = _times(burst, tuple(compared.outcome for compared in outcomes))
    return AlgorithmComparison(burst=burst, outcomes=outcomes, states=states_at(burst, times))


def states_at(burst: Burst, times_ms: tuple[int, ...]) -> tuple[StateRow, ...]:
    """The states at the given times after the burst (ms)."""
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
    """The times worth a row, in ms: every turning point, the sample before it, and some evenly between."""
    turns = {time for outcome in outcomes for time in (outcome.delay_ms, outcome.admitted_after_ms)}
    size_ms = burst.window.window_ms
    end_ms = max(*turns, size_ms)
    step_ms = max(end_ms // _EVENLY // size_ms, 1) * size_ms
    evenly = range(0, end_ms, step_ms)
    before = {time - size_ms for time in turns if time > size_ms}
    return tuple(sorted({0, *turns, *before, *evenly}))
