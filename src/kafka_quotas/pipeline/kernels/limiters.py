"""Limiters of many quota buckets under many limits: their state, and events run through them.

Contract (for jobs): `Limiters(rule, bounds)` is fresh. `run` takes events in any number of calls and adds up the
results. `trace` also returns them event by event. State carries over from call to call: a batch is one call, a stream
is many. A row is a quota bucket, a column of `bounds` one proposed limit per row (`UNLIMITED` for none).

Invariants: the events of one row must come in the order they happen in, over all calls. Rows may be mixed, and events
of row -1 are skipped. Results are `core`'s on the same events, to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import LONG_MAX, UNLIMITED
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.kernels.admission import (
    COMPLETE_MS,
    EXPIRED_MS,
    FAR_MS,
    HEAD,
    OLDEST_MS,
    RECORD,
    record_and_sum,
    spanned_ms,
)
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.loop import (
    AMOUNTS,
    COUNTS,
    FRESH,
    STEPS,
    percentiles_ms,
    replay_lanes,
    replay_records,
)
from kafka_quotas.pipeline.kernels.order import by_row, events_by_row, order_by_row, sort_ties

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Rows = NDArray[np.int32]

_FIRST_POOL: Final = 64
_PART_EVENTS: Final = 1 << 16
"""Events that are sorted and run at a time: as many as a processor's cache holds."""
_NO_OPS: Final = np.empty(0, dtype=np.int8)
_NO_TRACE: Final = np.empty((0, 4), dtype=np.int64)
_NO_LEVELS: Final = np.empty(0, dtype=np.float64)


def clocks_width(samples: int) -> int:
    """Return how many places of `clocks` one ring takes."""
    return HEAD + 2 * (samples + 1)


def sums_width(samples: int) -> int:
    """Return how many places of `sums` one ring takes."""
    return samples + 2


def fresh_clocks(samples: int) -> NDArray[np.int64]:
    """Return the clocks of one ring without records."""
    clocks = np.zeros(clocks_width(samples), dtype=np.int64)
    clocks[[COMPLETE_MS, EXPIRED_MS, OLDEST_MS]] = -FAR_MS, FAR_MS, FAR_MS
    return clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterRule:
    """How every event is judged."""

    operation: int = RECORD
    """One of `admission`'s operations."""
    tokens: bool = False
    """Token bucket of a mutation quota instead of a windowed rate."""
    bounded: bool = False
    """Delays of at most one window, as for request time."""
    closed: bool = False
    """Closed loop: a client per row waits out every delay and repeats refused events."""
    window: QuotaWindow = DEFAULT_WINDOW

    @property
    def longest_ms(self) -> int:
        """The longest delay in ms."""
        return self.window.window_ms if self.bounded else LONG_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The result of each event's last attempt under each limit, in arrays of events by limits."""

    throttle_ms: Int64s
    """Throttle time in ms."""
    happened_ms: Int64s
    """Time of the last attempt in ms since 1970."""
    window_ms: Int64s
    """Window in ms that the rate was measured over."""
    held: NDArray[np.bool_]
    """Whether the bound held."""
    level: Floats
    """Rate per second, or the tokens judged."""


class Limiters:
    """Rates or token buckets, one per row and limit, and the tallies of their events."""

    def __init__(self, rule: LimiterRule, bounds: Floats) -> None:
        self.rule = rule
        self.bounds = np.ascontiguousarray(bounds, dtype=np.float64)
        lanes = self.bounds.size
        clocks = np.zeros(1, dtype=np.int64) if rule.tokens else fresh_clocks(rule.window.samples)
        self._clocks = np.tile(clocks, lanes)
        self._sums = np.zeros(lanes * (1 if rule.tokens else sums_width(rule.window.samples)))
        self._free_ms = np.full(lanes, -FAR_MS, dtype=np.int64)
        self._counts = np.tile(np.array(FRESH, dtype=np.int64), lanes)
        self._amounts = np.tile(np.array([0.0, -np.inf]), lanes)
        self._slots = np.full(lanes, -1, dtype=np.int64)
        self._pool = np.zeros((_FIRST_POOL + self.bounds.shape[1], STEPS), dtype=np.uint32)
        self._pool_used = np.zeros(1, dtype=np.int64)

    def run(self, rows: Rows, times_ms: Int64s, values: Floats, *, beside: "Sequence[Limiters]" = ()) -> None:
        """Run events through the limiters.

        Events of one row in the same millisecond are run smallest first, whatever order they come in.

        Args:
            rows: The row of each event, -1 to skip it.
            times_ms: Times in ms since 1970.
            values: Amounts.
            beside: Limiters with the same rows, to run the same events through: they are sorted once for all.
        """
        together = (self, *beside)
        for each in together:
            each._require_fit(rows, times_ms, values)  # noqa: SLF001 - its own class
        if len(self.bounds):
            for part in _parts(times_ms):
                events = events_by_row(rows[part], times_ms[part], values[part], row_count=len(self.bounds))
                for each in together:
                    each._advance(*events, _NO_OPS, _NO_TRACE, _NO_LEVELS)  # noqa: SLF001 - as above

    def trace(self, rows: Rows, times_ms: Int64s, values: Floats, operations: NDArray[np.int8] | None = None) -> Trace:
        """Run events through the limiters and return the result of each.

        Rows, times and values are those of `run`. `operations` has one per event, None for the rule's.
        """
        self._require_fit(rows, times_ms, values, *(() if operations is None else (operations,)))
        order, limits = order_by_row(rows, row_count=len(self.bounds)), self.bounds.shape[1]
        by_row, by_row_levels = np.zeros((order.size, limits, 4), dtype=np.int64), np.zeros((order.size, limits))
        ops = _NO_OPS if operations is None else operations[order]
        events = rows[order], times_ms[order], values[order]
        self._advance(*events, ops, by_row.reshape(-1, 4), by_row_levels.reshape(-1))
        traced, levels = np.zeros((rows.size, limits, 4), dtype=np.int64), np.zeros((rows.size, limits))
        traced[order], levels[order] = by_row, by_row_levels
        return Trace(
            throttle_ms=traced[:, :, 0],
            happened_ms=traced[:, :, 1],
            window_ms=traced[:, :, 2],
            held=traced[:, :, 3] != 0,
            level=levels,
        )

    def rebound(self, bounds: Floats) -> None:
        """Replace the limits from now on, and add rows where `bounds` has more.

        Recorded events stay.
        """
        added = Limiters(self.rule, np.asarray(bounds, dtype=np.float64)[len(self.bounds) :])
        self.bounds = np.ascontiguousarray(bounds, dtype=np.float64)
        for name in ("_clocks", "_sums", "_free_ms", "_counts", "_amounts", "_slots"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(added, name)]))

    @property
    def counts(self) -> Int64s:
        """The counts: rows by limits by the columns of `tally`."""
        return self._counts.reshape(*self.bounds.shape, COUNTS)

    @property
    def amounts(self) -> Floats:
        """Admitted amount and highest level: rows by limits by the columns of `tally`."""
        return self._amounts.reshape(*self.bounds.shape, AMOUNTS)

    def percentiles_ms(self, share: float) -> Floats:
        """Return the throttle time in ms that the given share of a lane's throttle times does not exceed.

        Returns:
            Rows by limits, 0 for a lane without throttle times.
        """
        found = np.zeros(self._slots.size)
        used = np.flatnonzero(self._slots >= 0)
        found[used] = percentiles_ms(self._pool, self._slots[used], share)
        return found.reshape(self.bounds.shape)

    def _require_fit(self, rows: NDArray[np.integer[Any]], *columns: NDArray[Any]) -> None:
        """Refuse arrays that would make compiled kernels, which check no bounds, read or write past an end."""
        if any(column.size != rows.size for column in columns):
            raise ValueError(f"{rows.size} rows of events, but columns of {[column.size for column in columns]}")
        if rows.size and not -1 <= rows.min() <= rows.max() < len(self.bounds):
            raise ValueError(f"events of rows {rows.min()} to {rows.max()}, but there are {len(self.bounds)}")
        samples, lanes = self.rule.window.samples, self.bounds.size
        clocks, sums = (1, 1) if self.rule.tokens else (clocks_width(samples), sums_width(samples))
        kept = [self._clocks, self._sums, self._free_ms, self._counts, self._amounts, self._slots]
        sizes = [lanes * clocks, lanes * sums, lanes, lanes * COUNTS, lanes * AMOUNTS, lanes]
        if [array.size for array in kept] != sizes:
            raise ValueError(f"arrays of {[array.size for array in kept]} where the rule and the bounds need {sizes}")

    def _advance(
        self, rows: Rows, times_ms: Int64s, values: Floats, ops: NDArray[np.int8], traced: Int64s, levels: Floats
    ) -> None:
        """Run events that come row by row, and double the pool of histograms whenever a pass runs out of it."""
        rule, window, done = self.rule, self.rule.window, 0
        settings = (window.samples, window.window_ms, rule.longest_ms)
        tallies = (self._counts, self._amounts, self._slots)
        events = (rows, times_ms, values)
        general = (ops, rule.operation, rule.tokens, rule.closed)
        plain = rule.operation == RECORD and not (rule.tokens or levels.size)
        while done < rows.size:
            lanes = (self._clocks, self._sums, self._free_ms, *tallies, self._pool, self._pool_used)
            if plain:
                done = replay_records(*events, rule.closed, self.bounds, *settings, *lanes, done)
            else:
                done = replay_lanes(*events, *general, self.bounds, *settings, *lanes, traced, levels, done)
            if done < rows.size:
                self._pool = np.concatenate([self._pool, np.zeros_like(self._pool)])


def _parts(times_ms: Int64s) -> Iterator[slice]:
    """Split the events into parts that a cache holds, with neighbours of one time in one part."""
    begin = 0
    while begin < times_ms.size:
        end = begin + _PART_EVENTS
        while end < times_ms.size and times_ms[end] == times_ms[end - 1]:
            end += 1
        yield slice(begin, min(end, times_ms.size))
        begin = end


@compiled
def add_up_seconds(
    rows, times_ms, amounts, events, figures, clocks, sums, samples, window_ms,
    out_rows, out_seconds, out_figures, out_amounts, out_rates,
):  # fmt: skip
    """Add up charges by row and second into the `out_` arrays, and return the number of cells.

    A cell has row, second, figures (with a count of events after them), amount and largest rate.
    """
    cells = -1
    kinds = figures.shape[0]
    for place in range(rows.shape[0]):
        row, now_ms, amount = rows[place], times_ms[place], amounts[place]
        second = now_ms // 1000
        c, s = row * (HEAD + 2 * (samples + 1)), row * (2 + samples)
        total = record_and_sum(clocks, sums, c, s, amount, now_ms, samples, window_ms)
        rate = total / (spanned_ms(clocks, c, now_ms, samples, window_ms) / 1000.0)
        if cells < 0 or out_rows[cells] != row or out_seconds[cells] != second:
            cells += 1
            out_rows[cells], out_seconds[cells] = row, second
            out_amounts[cells], out_rates[cells] = 0.0, rate
            for kind in range(kinds + 1):
                out_figures[kind, cells] = 0
        for kind in range(kinds):
            out_figures[kind, cells] += figures[kind, events[place]]
        out_figures[kinds, cells] += 1
        out_amounts[cells] += amount
        out_rates[cells] = max(out_rates[cells], rate)
    return cells + 1


class SecondCells(NamedTuple):
    """Sums of one second per row, in parallel arrays."""

    rows: Int64s
    seconds: Int64s
    """Seconds since 1970."""
    figures: Int64s
    """Sums by kind and cell; the last kind counts events."""
    amounts: Floats
    rates: Floats
    """Largest rate per second in each cell."""


class SecondsMeter(Limiters):
    """Rings of many rows without limits, and their sums by second."""

    def __init__(self, window: QuotaWindow) -> None:
        super().__init__(LimiterRule(window=window), np.empty((0, 1)))

    def grow(self, rows: int) -> None:
        """Add rows up to a number of `rows`."""
        self.rebound(np.full((rows, 1), UNLIMITED))

    def add(
        self, rows: NDArray[np.int32], times_ms: Int64s, amounts: Floats, *, events: Int64s, figures: Int64s
    ) -> SecondCells:
        """Record charges and return their cells.

        Args:
            rows: The row of each charge, -1 to skip it.
            times_ms: Times in ms since 1970, of whole seconds.
            amounts: The amount of each charge.
            events: The place of each charge in the lines of `figures`.
            figures: One line of whole numbers per kind.
        """
        self._require_fit(rows, times_ms, amounts, events)
        *charges, places = by_row(rows, times_ms, amounts, events, row_count=len(self.bounds))
        sort_ties(*charges)  # figures are whole numbers, which add up alike in any order
        size, window = places.size, self.rule.window
        out = SecondCells(
            rows=np.empty(size, dtype=np.int64),
            seconds=np.empty(size, dtype=np.int64),
            figures=np.empty((len(figures) + 1, size), dtype=np.int64),
            amounts=np.empty(size),
            rates=np.empty(size),
        )
        state = (self._clocks, self._sums, window.samples, window.window_ms)
        count = add_up_seconds(*charges, places, figures, *state, *out)
        return SecondCells._make(column[..., :count].copy() for column in out)
