"""A replay with its totals, and its course over time in a bounded number of points."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import (
    Algorithm,
    Event,
    EventOperation,
    SimulatedDecision,
    full_bucket_ms,
    new_limiter,
    replay,
    usual_operation,
)

MOST_POINTS: Final = 2000
"""Upper bound of the points of a course, which has at least half as many after as many decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The algorithm, quota and loop for a replay of events."""

    algorithm: Algorithm
    quota: float
    """Bound per second."""
    window: QuotaWindow
    operation: EventOperation | None = None
    """Operation of events that name none, None for the algorithm's usual one."""
    closed_loop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSummary:
    """The totals of a replay."""

    decisions: int
    admitted: int
    refused: int
    delayed: int
    amount: float
    """Amount of admitted events."""
    total_delay_ms: int
    longest_delay_ms: int
    highest_level: float
    first_ms: int
    last_ms: int
    mean_rate: float
    """Amount by the time from the first decision to the end of the last delay, at least one sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoursePoint:
    """A moment of a replay."""

    t_ms: int
    level: float
    """Rate per second, or tokens."""
    delay_ms: int
    """Delay in ms."""


def simulate(simulation: Simulation, events: Iterable[Event]) -> Iterator[SimulatedDecision]:
    """Return the decisions on the events, in step with their consumption.

    Times in the events may start at 0.

    Raises:
        UsageError: The algorithm does not take the window.
    """
    window = simulation.window
    limiter = new_limiter(
        simulation.algorithm, bound=simulation.quota, samples=window.samples, window_ms=window.window_ms
    )
    return replay(
        events,
        limiter,
        usual=simulation.operation or usual_operation(simulation.algorithm),
        origin_ms=full_bucket_ms(samples=window.samples, window_ms=window.window_ms),
        closed_loop=simulation.closed_loop,
    )


class Tally:
    """The running totals of decisions."""

    def __init__(self, window: QuotaWindow) -> None:
        self._least_ms = window.window_ms
        self._decisions = self._admitted = self._delayed = 0
        self._amount = 0.0
        self._total_delay_ms = self._longest_delay_ms = 0
        self._highest = -math.inf
        self._first_ms = self._last_ms = self._end_ms = 0

    def add(self, decision: SimulatedDecision) -> None:
        """Add a decision to the totals."""
        outcome, delay_ms = decision.outcome, max(decision.outcome.throttle_ms, 0)
        if not self._decisions:
            self._first_ms = self._last_ms = self._end_ms = decision.t_ms
        self._decisions += 1
        self._delayed += delay_ms > 0
        self._total_delay_ms += delay_ms
        self._longest_delay_ms = max(self._longest_delay_ms, delay_ms)
        self._highest = max(self._highest, outcome.level, outcome.after)
        self._last_ms = max(self._last_ms, decision.t_ms)
        self._end_ms = max(self._end_ms, decision.t_ms + delay_ms)
        if outcome.admitted:
            self._admitted += 1
            self._amount += _counted(decision)

    def summary(self) -> SimulationSummary:
        """Return the totals so far."""
        span_ms = max(self._end_ms - self._first_ms, self._least_ms)
        return SimulationSummary(
            decisions=self._decisions,
            admitted=self._admitted,
            refused=self._decisions - self._admitted,
            delayed=self._delayed,
            amount=self._amount,
            total_delay_ms=self._total_delay_ms,
            longest_delay_ms=self._longest_delay_ms,
            highest_level=self._highest,
            first_ms=self._first_ms,
            last_ms=self._last_ms,
            mean_rate=self._amount / (span_ms / 1000),
        )


class Course:
    """The course of a replay, thinned as it grows by keeping the point of higher delay or level."""

    def __init__(self) -> None:
        self._points: list[CoursePoint] = []
        self._pending: list[CoursePoint] = []
        self._stride = 1

    def add(self, decision: SimulatedDecision) -> None:
        """Add a decision to the course."""
        delay_ms = max(decision.outcome.throttle_ms, 0)
        self._pending.append(CoursePoint(t_ms=decision.t_ms, level=decision.outcome.after, delay_ms=delay_ms))
        if len(self._pending) == self._stride:
            self._points.append(_standing_out(self._pending))
            self._pending.clear()
        if len(self._points) == MOST_POINTS:
            self._points = [_standing_out(self._points[at : at + 2]) for at in range(0, MOST_POINTS, 2)]
            self._stride *= 2

    def points(self) -> tuple[CoursePoint, ...]:
        """Return the points in the order of time."""
        rest = [_standing_out(self._pending)] if self._pending else []
        return tuple(sorted([*self._points, *rest], key=lambda point: point.t_ms))


def _standing_out(points: list[CoursePoint]) -> CoursePoint:
    return max(points, key=lambda point: (point.delay_ms, abs(point.level)))


def _counted(decision: SimulatedDecision) -> float:
    """Return the amount that a decision moved: none for a check, negative for one that took back."""
    if decision.operation is EventOperation.CHECK:
        return 0.0
    return -decision.amount if decision.operation is EventOperation.UNRECORD else decision.amount
