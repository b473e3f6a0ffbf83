"""The replay without a compiler: many lanes at a time in NumPy, the few longest ones value by value.

Invariants: results are those of the compiled loop, to the last bit. Each lane sees its events in order and its sums are
added in the order of the slots. A round takes one attempt of every lane that still has events.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import INT_MAX
from kafka_quotas.core.quotas.simulation import MAX_ATTEMPTS, RETRY_BACKOFF_MS
from kafka_quotas.pipeline.kernels.admission import CHECK, FETCH
from kafka_quotas.pipeline.kernels.compiled import NUMBA
from kafka_quotas.pipeline.kernels.lockstep_admission import RateLanes, TokenLanes
from kafka_quotas.pipeline.kernels.loop import run_attempts
from kafka_quotas.pipeline.kernels.tally import (
    AMOUNT,
    AMOUNTS,
    BEGIN_MS,
    COUNTS,
    END_MS,
    EVENTS,
    FIRST_MS,
    LATE_MS,
    LONGEST_MS,
    PEAK,
    REFUSALS,
    STEPS,
    THROTTLE_MS,
    THROTTLED,
    steps_of,
)

_FEWEST_LANES: Final = 16
"""Lanes below which a round in NumPy costs more than its lanes value by value."""

Int64s = NDArray[np.int64]


def replay_in_lockstep(
    rows: NDArray[np.int32], times_ms: Int64s, values: NDArray[np.float64], ops: NDArray[np.int8],
    op: int, tokens: bool, closed: bool, bounds: NDArray[np.float64], samples: int, window_ms: int, longest_ms: int,
    clocks: Int64s, sums: NDArray[np.float64], free_ms: Int64s, counts: Int64s, amounts: NDArray[np.float64],
    slots: Int64s, pool: NDArray[np.uint32], pool_used: Int64s, traced: Int64s, levels: NDArray[np.float64],
    begin: int,
) -> int:  # fmt: skip
    """Replay events from place `begin` on, as `loop.replay_lanes` does.

    Returns:
        The number of events, or `begin` where the pool of histograms might not suffice.
    """
    present, first, many = np.unique(rows[begin:], return_index=True, return_counts=True)
    limits = bounds.shape[1]
    lanes = (present[:, None].astype(np.int64) * limits + np.arange(limits)).ravel()
    if int(pool_used[0]) + int((slots[lanes] < 0).sum()) > len(pool):
        return begin
    kind = TokenLanes if tokens else RateLanes
    lockstep = _Lockstep(
        limiters=kind(clocks, sums, samples=samples, window_ms=window_ms, longest_ms=longest_ms),
        events=(times_ms[begin:], values[begin:], ops[begin:], op),
        rule=(tokens, closed, samples, window_ms, longest_ms),
        state=(clocks, sums, free_ms, counts, amounts, slots, pool, pool_used),
        outputs=(traced, levels),
        bounds=bounds,
    )
    lockstep.run(lanes, np.repeat(first, limits), np.repeat(many, limits))
    return int(rows.size)


class _Lockstep:
    """The events of one call and the position of each lane in them."""

    def __init__(
        self,
        *,
        limiters: RateLanes | TokenLanes,
        events: tuple[Any, ...],
        rule: tuple[Any, ...],
        state: tuple[Any, ...],
        outputs: tuple[Any, ...],
        bounds: NDArray[np.float64],
    ) -> None:
        self._limiters = limiters
        self._times_ms, self._values, self._ops, self._op = events
        self._rule = rule
        self._closed = rule[1]
        self._clocks, self._sums, self._free_ms, counts, amounts, self._slots, self._pool, self._pool_used = state
        self._counts, self._amounts = counts.reshape(-1, COUNTS), amounts.reshape(-1, AMOUNTS)
        self._traced, self._levels = outputs
        self._bounds, self._limits = bounds.ravel(), bounds.shape[1]

    def run(self, lanes: Int64s, first: Int64s, many: Int64s) -> None:
        """Run the events of every lane, `many` of them from place `first` on."""
        self._lane, self._next, self._last = lanes, first.copy(), first + many
        self._attempt = np.zeros(lanes.size, dtype=np.int64)
        self._rest, self._now = np.zeros(lanes.size), np.zeros(lanes.size, dtype=np.int64)
        self._throttled = np.zeros(lanes.size, dtype=bool)
        active = np.arange(lanes.size)
        while active.size:
            if active.size < _FEWEST_LANES:
                for each in active[self._attempt[active] == 0]:
                    self._finish_singly(int(each))
                active = active[self._attempt[active] > 0]
            if active.size:
                active = self._round(active)

    def _round(self, active: Int64s) -> Int64s:
        """Take one more attempt of each active lane and return the lanes that still have events."""
        lane, position = self._lane[active], self._next[active]
        op = self._ops[position] if self._ops.size else np.full(active.size, self._op)
        self._begin_events(active, lane, position)
        now, bound = self._now[active], self._bounds[lane]
        value = self._piece(op, bound, self._rest[active])
        admitted, held, throttle_ms, span_ms, level = self._limiters.admit(lane, op, value, bound, now)
        self._tally_attempt(active, lane, now, throttle_ms, level)
        self._amounts[lane, AMOUNT] += np.where(admitted & (op != CHECK), value, 0.0)
        self._counts[lane, REFUSALS] += ~admitted
        self._rest[active] -= np.where(admitted, value, 0.0)
        self._now[active] = now + self._wait(op, admitted, throttle_ms)
        self._attempt[active] += 1
        again = np.where(admitted, (op == FETCH) & (self._rest[active] > 0.0), self._closed & (op != CHECK))
        over = ~(again & (self._attempt[active] < MAX_ATTEMPTS))
        done = active[over]
        self._tally_events(done, lane[over], now[over], position[over])
        if self._levels.size:
            lines = position[over] * self._limits + lane[over] % self._limits
            self._traced[lines] = np.stack([throttle_ms, now, span_ms, held], axis=1)[over]
            self._levels[lines] = level[over]
        self._attempt[done] = 0
        self._next[done] += 1
        return active[self._next[active] < self._last[active]]

    def _begin_events(self, active: Int64s, lane: Int64s, position: Int64s) -> None:
        fresh = self._attempt[active] == 0
        due_ms = self._times_ms[position[fresh]]
        self._now[active[fresh]] = np.maximum(due_ms, self._free_ms[lane[fresh]]) if self._closed else due_ms
        self._rest[active[fresh]] = self._values[position[fresh]]
        self._throttled[active[fresh]] = False

    def _piece(self, op: Any, bound: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.float64]:
        _, _, samples, window_ms, _ = self._rule
        most = np.where(op == FETCH, bound * (samples - 1) * (window_ms / 1000.0), 0.0)
        return np.where(most > 0.0, np.minimum(rest, most), rest)

    def _wait(self, op: Any, admitted: NDArray[np.bool_], throttle_ms: Int64s) -> Int64s:
        wait_ms = np.clip(throttle_ms, 0, INT_MAX)
        backing_off = ~admitted & (op != FETCH) & self._closed
        return np.where(backing_off, np.maximum(wait_ms, RETRY_BACKOFF_MS), wait_ms)

    def _tally_attempt(
        self, active: Int64s, lane: Int64s, now: Int64s, throttle_ms: Int64s, level: NDArray[np.float64]
    ) -> None:
        self._amounts[lane, PEAK] = np.maximum(self._amounts[lane, PEAK], level)
        above = throttle_ms > 0
        throttled, delay_ms = lane[above], throttle_ms[above]
        self._throttled[active[above]] = True
        self._counts[throttled, THROTTLE_MS] += delay_ms
        self._counts[throttled, LONGEST_MS] = np.maximum(self._counts[throttled, LONGEST_MS], delay_ms)
        self._counts[throttled, FIRST_MS] = np.minimum(self._counts[throttled, FIRST_MS], now[above])
        new = throttled[self._slots[throttled] < 0]
        self._slots[new] = self._pool_used[0] + np.arange(new.size)
        self._pool_used[0] += new.size
        self._pool.reshape(-1)[self._slots[throttled] * STEPS + steps_of(delay_ms)] += 1

    def _tally_events(self, done: Int64s, lane: Int64s, happened_ms: Int64s, position: Int64s) -> None:
        self._free_ms[lane] = self._now[done]
        self._counts[lane, EVENTS] += 1
        self._counts[lane, THROTTLED] += self._throttled[done]
        self._counts[lane, LATE_MS] += happened_ms - self._times_ms[position]
        self._counts[lane, BEGIN_MS] = np.minimum(self._counts[lane, BEGIN_MS], happened_ms)
        self._counts[lane, END_MS] = np.maximum(self._counts[lane, END_MS], self._now[done])

    def _finish_singly(self, each: int) -> None:
        lane = int(self._lane[each])
        clock, total = _editable(self._limiters.clocks[lane]), _editable(self._limiters.sums[lane])
        counts, amounts = _editable(self._counts[lane]), _editable(self._amounts[lane])
        tokens, closed, samples, window_ms, longest_ms = self._rule
        bound, free_ms = float(self._bounds[lane]), int(self._free_ms[lane])
        for position in range(int(self._next[each]), int(self._last[each])):
            due_ms = int(self._times_ms[position])
            op = int(self._ops[position]) if self._ops.size else self._op
            free_ms, *outcome, level = run_attempts(
                clock, total, 0, 0, op, due_ms, max(due_ms, free_ms) if closed else due_ms,
                float(self._values[position]), bound, tokens, closed, samples, window_ms, longest_ms,
                counts, 0, amounts, 0, self._slots, self._pool, self._pool_used, lane,
            )  # fmt: skip
            if self._levels.size:
                line = position * self._limits + lane % self._limits
                happened_ms, throttle_ms, span_ms, held = outcome
                self._traced[line] = (throttle_ms, happened_ms, span_ms, held)
                self._levels[line] = level
        self._limiters.clocks[lane], self._limiters.sums[lane] = clock, total
        self._counts[lane], self._amounts[lane] = counts, amounts
        self._free_ms[lane] = free_ms
        self._next[each] = self._last[each]


def _editable(line: NDArray[Any]) -> Any:
    """Copy a line of figures for `run_attempts`: a list, which Python reads faster, or a compiled array."""
    return line.copy() if NUMBA else line.tolist()
