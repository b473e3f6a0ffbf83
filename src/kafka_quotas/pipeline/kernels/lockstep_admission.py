"""One operation on many limiters at a time in NumPy: `ring` and `admission` over arrays.

Invariants: the lanes of one call differ. Sums are added in the order of the slots, one slot of all lanes at a time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_key import LONG_MAX
from kafka_quotas.pipeline.kernels.admission import FETCH, NOCHECK, RECORD, STRICT
from kafka_quotas.pipeline.kernels.ring import (
    COMPLETE_MS,
    COUNT,
    EXPIRED_MS,
    FAR_MS,
    HEAD,
    INDEX,
    LATEST_MS,
    OLDEST_MS,
    narrow32,
)

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Admission = tuple[NDArray[np.bool_], NDArray[np.bool_], Int64s, Int64s, Floats]
"""Whether each is admitted and its bound holds, throttle time and window in ms, and the rate or the tokens."""


class RateLanes:
    """Windowed rates, one per lane."""

    def __init__(self, clocks: Int64s, sums: Floats, *, samples: int, window_ms: int, longest_ms: int) -> None:
        self.clocks = clocks.reshape(-1, HEAD + 2 * (samples + 1))
        self.sums = sums.reshape(-1, 2 + samples)
        self._samples, self._window_ms, self._longest_ms = samples, window_ms, longest_ms
        self._slots = np.arange(samples + 1)

    def admit(self, lane: Int64s, op: Any, value: Floats, bound: Floats, now: Int64s) -> Admission:
        """Apply one operation to each lane's rate and judge it."""
        recording = (op == RECORD) | (op == FETCH) | (op == NOCHECK)
        checking = op != NOCHECK
        self._record(lane[recording], value[recording], now[recording])
        total, span_ms = np.zeros(lane.size), np.ones(lane.size, dtype=np.int64)
        total[checking] = self._measure(lane[checking], now[checking])
        span_ms[checking] = self._span(lane[checking], now[checking])
        rate = total / (span_ms / 1000.0)
        held = (rate <= bound) | ~checking
        throttle_ms = np.zeros(lane.size, dtype=np.int64)
        over = ~held
        delay = _quotient(rate[over] - bound[over], bound[over]) * span_ms[over]
        throttle_ms[over] = np.minimum(_round_half_up(delay), self._longest_ms)
        strict = (op == STRICT) & held
        self._record(lane[strict], value[strict], now[strict])
        refused = (op == FETCH) & (throttle_ms > 0)
        self._record(lane[refused], -value[refused], now[refused])
        span_ms[~checking] = 0
        return held | ((op == RECORD) | (op == FETCH)) & ~refused, held, throttle_ms, span_ms, rate

    def _record(self, lane: Int64s, value: Floats, now: Int64s) -> None:
        complete = now >= self.clocks[lane, COMPLETE_MS]
        self._turn(lane[complete], now[complete])
        index = self.clocks[lane, INDEX]
        self.sums[lane, 1 + index] += value
        self.clocks[lane, HEAD + 2 * index + 1] = now

    def _measure(self, lane: Int64s, now: Int64s) -> Floats:
        empty = self.clocks[lane, COUNT] == 0
        self._turn(lane[empty], now[empty])
        last_ms = self.clocks[lane, HEAD + 2 * self.clocks[lane, INDEX] + 1]
        expire_ms = self._samples * self._window_ms
        expired = (now >= self.clocks[lane, EXPIRED_MS]) | (now - last_ms >= expire_ms)
        self._purge(lane[expired], now[expired])
        total: Floats = self.sums[lane, 0]
        index, count = self.clocks[lane, INDEX], self.clocks[lane, COUNT]
        for slot in self._slots:
            total = total + np.where((slot >= index) & (slot < count), self.sums[lane, 1 + slot], 0.0)
        return total

    def _span(self, lane: Int64s, now: Int64s) -> Int64s:
        elapsed_ms = now - self.clocks[lane, OLDEST_MS]
        whole = narrow32(np.sign(elapsed_ms) * (np.abs(elapsed_ms) // self._window_ms))
        short = narrow32(self._samples - 1 - whole) * self._window_ms
        spans_ms: Int64s = np.maximum(elapsed_ms + np.where(whole < self._samples - 1, short, 0), 1)
        return spans_ms

    def _turn(self, lane: Int64s, now: Int64s) -> None:
        if lane.size:
            count = self.clocks[lane, COUNT]
            index = np.where(count > 0, (self.clocks[lane, INDEX] + 1) % (self._samples + 1), 0)
            self.clocks[lane, COUNT] = np.maximum(count, index + 1)
            self.clocks[lane, INDEX] = index
            self.clocks[lane, HEAD + 2 * index] = self.clocks[lane, HEAD + 2 * index + 1] = now
            self.sums[lane, 1 + index] = 0.0
            self._refresh(lane)

    def _purge(self, lane: Int64s, now: Int64s) -> None:
        if lane.size:
            gone = now[:, None] - self.clocks[lane, HEAD + 1 :: 2] >= self._samples * self._window_ms
            gone &= self._slots < self.clocks[lane, COUNT][:, None]
            which, slot = np.nonzero(gone)
            self.clocks[lane[which], HEAD + 2 * slot] = now[which]
            self.clocks[lane[which], HEAD + 2 * slot + 1] = now[which]
            self.sums[lane[which], 1 + slot] = 0.0
            self._refresh(lane)

    def _refresh(self, lane: Int64s) -> None:
        index, count = self.clocks[lane, INDEX], self.clocks[lane, COUNT]
        there = self._slots < count[:, None]
        others = there & (self._slots != index[:, None])
        start_ms = np.where(there, self.clocks[lane, HEAD::2], FAR_MS)
        last_ms = self.clocks[lane, HEAD + 1 :: 2]
        expires_ms = last_ms + self._samples * self._window_ms
        self.clocks[lane, COMPLETE_MS] = self.clocks[lane, HEAD + 2 * index] + self._window_ms
        self.clocks[lane, EXPIRED_MS] = np.where(others, expires_ms, FAR_MS).min(axis=1)
        self.clocks[lane, OLDEST_MS] = start_ms.min(axis=1)
        self.clocks[lane, LATEST_MS] = np.where(others, last_ms, 0).max(axis=1)
        prefix = np.zeros(lane.size)
        for slot in self._slots:
            prefix = prefix + np.where(slot < index, self.sums[lane, 1 + slot], 0.0)
        self.sums[lane, 0] = prefix


class TokenLanes:
    """Token buckets, one per lane."""

    def __init__(self, clocks: Int64s, sums: Floats, *, samples: int, window_ms: int, longest_ms: int) -> None:
        self.clocks, self.sums = clocks.reshape(-1, 1), sums.reshape(-1, 1)
        self._burst_s = samples * (window_ms / 1000.0)
        self._longest_ms = longest_ms

    def admit(self, lane: Int64s, op: Any, value: Floats, bound: Floats, now: Int64s) -> Admission:
        """Apply one operation to each lane's token bucket and judge it."""
        checking = op != NOCHECK
        self._take(lane, np.where((op == RECORD) | ~checking, value, 0.0), bound, now)
        tokens = np.where(checking, self.sums[lane, 0], 0.0)
        held = ~(tokens < 0.0)
        throttle_ms = np.zeros(lane.size, dtype=np.int64)
        throttle_ms[~held] = _round_half_up(_quotient(-tokens[~held], bound[~held]) * 1000)
        self._take(lane, np.where((op == STRICT) & held, value, 0.0), bound, now)
        return held | (op == RECORD), held, throttle_ms, np.zeros(lane.size, dtype=np.int64), tokens

    def _take(self, lane: Int64s, value: Floats, bound: Floats, now: Int64s) -> None:
        burst = self._burst_s * bound
        tokens = np.minimum(self.sums[lane, 0] + bound * ((now - self.clocks[lane, 0]) / 1000.0), burst)
        self.sums[lane, 0] = np.minimum(tokens - value, burst)
        self.clocks[lane, 0] = now


def _quotient(dividend: Floats, divisor: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient: Floats = dividend / divisor
    return quotient


def _round_half_up(value: Floats) -> Int64s:
    floor = np.floor(value)
    fits = (value < float(LONG_MAX)) & (value > -float(LONG_MAX))  # NaN does not
    whole = np.where(fits, floor, 0.0).astype(np.int64) + (value - floor >= 0.5)
    whole[value >= float(LONG_MAX)] = LONG_MAX
    whole[value <= -float(LONG_MAX)] = -LONG_MAX - 1
    return whole
