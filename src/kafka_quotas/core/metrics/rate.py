"""A ring of samples over a sliding window, the rates that Kafka makes of it, and a rate that several processes share.

A sample is a slot with a start, the time of its last record, and a sum. There is one slot more than `samples`, for
the one that overlaps the start of the window. A record goes to the current slot, or, one window after that slot's
start, to the next slot of the ring, replacing its content. Only observing expires slots: it resets a slot to the time
of observing once the slot's last record is `samples` windows old.

A rate is the sum over the samples divided by the window: the time since the oldest sample's start, plus one whole
window for every whole window short of `samples - 1`, and at least 1 ms. The count of whole windows is truncated
towards zero and to 32 bits, so it is negative where the clock went back.

Invariants: sums are added up in the order of the slots, starting from 0.0, so that results are Kafka's to the last
bit. The current slot is held in plain attributes, the other slots in one array of doubles (times are exact up to
2^53 ms) with their sums and bounds precomputed: neither a record nor an observation reads a slot that can't have
changed. The clock may stand still or go back.

**Source:** `SampledStat`, `WindowedSum`, `WindowedCount`, `Rate`, `SimpleRate`; `MetricsUtils.convert` of Kafka 4.0.
"""

import math
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kafka_quotas.core.metrics.throttle_time import narrow_to_int32

_FAR_MS: Final = 1 << 62
"""Later than any time: the last record of missing slots, which therefore never expire."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One slot of the ring."""

    start_ms: int
    last_ms: int
    value: float


class WindowedSum:
    """The sum of recorded values over a sliding window (Kafka's `WindowedSum`)."""

    __slots__ = (
        "_complete_ms",
        "_due_ms",
        "_expire_ms",
        "_expired_ms",
        "_index",
        "_last_ms",
        "_oldest_ms",
        "_prefix",
        "_samples",
        "_slots",
        "_tail",
        "_value",
        "_whole_ms",
        "_window_ms",
    )

    def __init__(self, samples: int, window_ms: int) -> None:
        self._slots = array("d")  # start, last record and sum of each slot in turn; stale for the current one
        self._index = 0
        self._value = 0.0
        self._last_ms = self._oldest_ms = _FAR_MS
        self._prefix = 0.0
        self._tail: array[float] | None = None
        # From when on the current slot is complete, from when on another one has expired, and the earlier of the two.
        self._complete_ms = self._due_ms = -_FAR_MS  # the first record finds the slot before it long complete
        self._expired_ms = _FAR_MS
        self.reconfigure(samples, window_ms)

    def reconfigure(self, samples: int, window_ms: int) -> None:
        """Set the dimensions of the ring, keeping what was recorded.

        With fewer samples the surplus slots stay, and count, until they expire. The index wraps at the new size.
        """
        self._store_current()
        self._samples = samples
        self._window_ms, self._expire_ms, self._whole_ms = _spans_ms(samples, window_ms)
        self._load_current()

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the current slot, or to the next one once that is complete."""
        if now_ms >= self._complete_ms:
            self._advance(now_ms)
        self._value += value
        self._last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Return the sum over the slots that have not expired, resetting expired ones to `now_ms`."""
        if now_ms >= self._expired_ms or now_ms - self._last_ms >= self._expire_ms:
            self._purge(now_ms)
        total = self._prefix + self._value
        for value in self._tail or ():
            total += value
        return total

    @property
    def slots(self) -> tuple[Sample, ...]:
        """The slots in the order of the ring, read without changing them."""
        self._store_current()
        slots = self._slots
        return tuple(Sample(int(slots[at]), int(slots[at + 1]), slots[at + 2]) for at in range(0, len(slots), 3))

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: the index of the current slot, then start, last record and sum of each."""
        self._store_current()
        return (float(self._index), *self._slots)

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the ring from the snapshot of another, with all its times moved by `shift_ms`."""
        index, slots = int(snapshot[0]), array("d", snapshot[1:])
        count, surplus = divmod(len(slots), 3)
        if surplus or count > self._samples + 1 or not 0 <= index < max(count, 1):
            raise ValueError(f"{len(snapshot)} figures are no ring of {self._samples} samples")
        for at in range(0, len(slots), 3):
            slots[at] += shift_ms
            slots[at + 1] += shift_ms
        self._index, self._slots = index, slots
        self._load_current()

    def _advance(self, now_ms: int) -> None:
        self._store_current()
        self._turn(now_ms)
        self._load_current()

    def _purge(self, now_ms: int) -> None:
        self._store_current()
        self._reset_expired(now_ms)
        self._load_current()

    def _settle(self, now_ms: int) -> None:
        """Take the next slot if the current one is complete, and reset the others that have expired.

        The record that follows makes the current slot one that can't expire, so it counts as recorded to already.
        """
        self._store_current()
        expired = now_ms >= self._expired_ms
        if now_ms >= self._complete_ms:
            expired = expired or now_ms - self._last_ms >= self._expire_ms
            self._turn(now_ms)
        else:
            self._slots[3 * self._index + 1] = now_ms
        if expired:
            self._reset_expired(now_ms)
        self._load_current()

    def _turn(self, now_ms: int) -> None:
        size = len(self._slots) // 3
        self._index = index = (self._index + 1) % (self._samples + 1) if size else 0
        if index == size:
            self._slots = self._slots + array("d", (now_ms, now_ms, 0.0))  # has no spare room, as extending would leave
        else:
            self._reset(index, now_ms)

    def _reset_expired(self, now_ms: int) -> None:
        """Reset the slots outside the window, in the arrays alone."""
        gone_ms = float(now_ms - self._expire_ms)
        for index, last_ms in enumerate(self._slots[1::3].tolist()):
            if last_ms <= gone_ms:
                self._reset(index, now_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        at = 3 * index
        self._slots[at] = self._slots[at + 1] = now_ms
        self._slots[at + 2] = 0.0

    def _store_current(self) -> None:
        if self._slots:
            self._slots[3 * self._index + 1] = self._last_ms
            self._slots[3 * self._index + 2] = self._value

    def _load_current(self) -> None:
        """Load the current slot from the arrays, and precompute the sums and bounds of the others."""
        slots, at = self._slots.tolist(), 3 * self._index
        if not slots:
            return
        self._value = slots[at + 2]
        self._last_ms = int(slots[at + 1])
        slots[at + 1] = float(_FAR_MS)  # so that the least of them is that of the others
        self._complete_ms = complete_ms = int(slots[at]) + self._window_ms
        self._expired_ms = expired_ms = int(min(slots[1::3])) + self._expire_ms
        self._due_ms = min(complete_ms, expired_ms)
        self._oldest_ms = int(min(slots[::3]))
        prefix = 0.0
        for value in slots[2:at:3]:
            prefix += value
        self._prefix = prefix
        self._tail = self._slots[at + 5 :: 3] or None


@lru_cache(maxsize=64)
def _spans_ms(samples: int, window_ms: int) -> tuple[int, int, int]:
    """Return the length of one window, of all, and of all but one, with rings sharing the objects."""
    return window_ms, samples * window_ms, (samples - 1) * window_ms


class WindowedCount(WindowedSum):
    """The number of records over a sliding window, whatever their values (Kafka's `WindowedCount`)."""

    __slots__ = ()

    def record(self, value: float, now_ms: int) -> None:  # noqa: ARG002 - counts whatever the value
        """Count one record in the current slot."""
        super().record(1.0, now_ms)


class Rate(WindowedSum):
    """The recorded amount per second (Kafka's `Rate` of a `WindowedSum`)."""

    __slots__ = ()

    def measure(self, now_ms: int) -> float:
        """Return the rate per second, resetting expired samples to `now_ms`."""
        total = super().measure(now_ms)
        return total / (self.window_ms(now_ms) / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """Return the window in ms that a rate measured now is divided by, starting the first sample if needed."""
        if not self._slots:
            self._advance(now_ms)
        elif now_ms >= self._expired_ms or now_ms - self._last_ms >= self._expire_ms:
            self._purge(now_ms)
        return self._spanned_ms(now_ms - self._oldest_ms)

    def peek(self, now_ms: int) -> float:
        """Return the rate that `measure` would find, without resetting or adding a sample."""
        self._store_current()
        slots, gone_ms = self._slots.tolist(), float(now_ms - self._expire_ms)
        kept = [at for at in range(0, len(slots), 3) if slots[at + 1] > gone_ms]
        starts = [slots[at] for at in kept]
        if 3 * len(kept) < len(slots) or not kept:
            starts.append(float(now_ms))
        total = 0.0
        for at in kept:
            total += slots[at + 2]
        return total / (self._spanned_ms(now_ms - int(min(starts))) / 1000.0)

    def _spanned_ms(self, elapsed_ms: int) -> int:
        """Return the window in ms for the age of the oldest sample (negative: in the future)."""
        size_ms = self._window_ms
        whole = narrow_to_int32(elapsed_ms // size_ms if elapsed_ms >= 0 else -(-elapsed_ms // size_ms))
        if whole < self._samples - 1:
            elapsed_ms += narrow_to_int32(self._samples - 1 - whole) * size_ms
        return max(elapsed_ms, 1)


class CountRate(Rate):
    """The number of records per second, whatever their values (Kafka's `Rate` of a `WindowedCount`)."""

    __slots__ = ()

    def record(self, value: float, now_ms: int) -> None:  # noqa: ARG002 - counts whatever the value
        """Count one record in the current sample."""
        super().record(1.0, now_ms)


class SimpleRate(Rate):
    """A rate over the time since the oldest sample's start, at least one window, as of replication quotas."""

    __slots__ = ()

    def _spanned_ms(self, elapsed_ms: int) -> int:
        return max(elapsed_ms, self._window_ms)


class ShareableRate(Rate):
    """A rate of which other processes record and use a part."""

    __slots__ = ("_factor", "_gone", "_reserved", "_reserved_base")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._reserved = self._reserved_base = self._factor = 0.0
        self._gone = 0.0  # what was recorded in slots before the current one
        super().__init__(samples, window_ms)

    def measure(self, now_ms: int) -> float:
        """Return the rate per second with what is reserved, resetting expired samples to `now_ms`."""
        total = WindowedSum.measure(self, now_ms)
        if self._factor:
            total += self._factor * (self.total - self._reserved_base)
        return total / (self.window_ms(now_ms) / 1000.0)

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the ring from the snapshot of another, with all its times moved by `shift_ms`."""
        total = self.total
        super().restore(snapshot, shift_ms)
        self._gone = total - self._value

    @property
    def total(self) -> float:
        """The sum of all records since the start, whatever has expired since."""
        return self._gone + self._value

    def reserve(self, amount: float, factor: float = 0.0) -> None:
        """Measure as if this amount were recorded, in place of the one reserved before.

        Args:
            amount: The amount, which does not expire.
            factor: Multiple of all later records by which it grows, until the next call.
        """
        if amount != self._reserved or factor or self._factor:
            self._store_current()
            self._reserved, self._factor = amount, factor
            self._reserved_base = self.total
            self._load_current()

    @property
    def reserved(self) -> float:
        """The amount that is reserved by now."""
        return self._reserved + self._factor * (self.total - self._reserved_base)

    def used(self, now_ms: int) -> float:
        """Return the sum over the slots that have not expired, without what is reserved."""
        return WindowedSum.measure(self, now_ms) - self._reserved if self._slots else 0.0

    def mean_age_ms(self, now_ms: int) -> float:
        """Return how long ago the recorded amounts were recorded on average, to half a sample."""
        weighed = [(slot.value, now_ms - (slot.start_ms + slot.last_ms) / 2) for slot in self.slots]
        total = sum(value for value, _ in weighed)
        return max(0.0, sum(value * age_ms for value, age_ms in weighed) / total) if total > 0 else 0.0

    def record_past(self, value: float, since_ms: int, until_ms: int, now_ms: int) -> None:
        """Record a value as if it had come evenly over a time, without the part that has expired by now.

        Args:
            value: The amount of the whole time.
            since_ms: Its start.
            until_ms: Its end, not after `now_ms`.
            now_ms: The time of the call.
        """
        if now_ms >= self._complete_ms:
            self._advance(now_ms)
        self._last_ms = now_ms
        self._store_current()
        missing = self._samples + 1 - len(self._slots) // 3
        if missing > 0:
            oldest_ms = int(min(self._slots[::3]))
            starts = [oldest_ms - self._window_ms * before for before in range(missing, 0, -1)]
            self._slots = array("d", [at for each in starts for at in (each, each, 0.0)]) + self._slots
            self._index += missing
        since_ms = min(since_ms, until_ms - 1)
        self._spread(value / (until_ms - since_ms), max(since_ms, now_ms - self._expire_ms), until_ms)

    def _spread(self, per_ms: float, since_ms: int, until_ms: int) -> None:
        """Add to each slot its part of an even rate over a time, in whole 1,024ths, whose sums are exact."""
        before, added, end_ms = self.total, 0.0, until_ms
        slots, size = self._slots, len(self._slots) // 3
        # From the current slot back: the ring reuses the oldest within a sample, whatever start it was reset to.
        newer_ms = float(until_ms)
        for step in range(size):
            at = 3 * ((self._index - step) % size)
            if step and not slots[at + 2] and slots[at] >= newer_ms - 1:
                slots[at] = slots[at + 1] = newer_ms - self._window_ms
            newer_ms = slots[at]
            begin_ms = max(int(newer_ms), since_ms) if step < size - 1 else since_ms
            if begin_ms >= end_ms:
                continue
            part = round(per_ms * (end_ms - begin_ms) * 1024) / 1024
            slots[at + 2] += part
            slots[at + 1] = max(slots[at + 1], end_ms)
            added += part
            end_ms = begin_ms
            if end_ms <= since_ms:
                break
        self._load_current()
        self._gone = before + added - self._value

    def _load_current(self) -> None:
        before = self._value
        super()._load_current()
        if self._slots:
            self._gone += before - self._value  # the total is the same whichever slot is the current one
            self._prefix += self._reserved


TICK_MS: Final = 5_000
ALPHA: Final = 1.0 - math.exp(-5.0 / 60.0)
FALLING_MS: Final = 3_600_000
"""The longest forecast of a falling rate: in an hour it falls by 26 decimal places."""


class EwmaMeter:
    """A counter with a one-minute average of its rate per second, moved every `TICK_MS`.

    The rate is 0 before the first tick, which sets it to the rate of its interval. Each further tick moves it by
    `ALPHA`. Missed ticks are applied one by one, with the count in the first of them. Between ticks the rate does not
    change. A clock that goes back causes no tick.

    **Source:** "Broker-side quota V1"; the exponentially weighted `Meter` of Kafka's metrics library.
    """

    __slots__ = ("_rate", "_ticked", "_ticked_ms", "_uncounted", "recorded_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self._ticked_ms = start_ms
        self._ticked = False
        self._uncounted = 0.0
        self._rate = 0.0
        self.total = 0.0
        self.recorded_ms = start_ms
        """The time of the last record, of the start without one."""

    def record(self, value: float, now_ms: int) -> None:
        """Count a value in the interval of `now_ms`."""
        self._tick(now_ms)
        self._uncounted += value
        self.recorded_ms = now_ms
        self.total += value

    def rate(self, now_ms: int) -> float:
        """Return the rate per second as of the last tick."""
        self._tick(now_ms)
        return self._rate

    @property
    def is_counting(self) -> bool:
        """Whether there are records since the last tick."""
        return self._uncounted != 0.0

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: the last tick (ms), whether there was one, the uncounted, the rate."""
        return (float(self._ticked_ms), float(self._ticked), self._uncounted, self._rate)

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the state of another meter, with all its times moved by `shift_ms`."""
        ticked_ms, ticked, uncounted, rate = snapshot
        if not all(map(math.isfinite, snapshot)):
            raise ValueError(f"no figures of a meter: {snapshot}")
        self._ticked_ms = int(ticked_ms) + shift_ms
        self._ticked = bool(ticked)
        self._uncounted = uncounted
        self._rate = rate

    def falls_in_ms(self, bound: float, now_ms: int) -> int:
        """Return the time in ms without records until the rate is at a bound or below, at most `FALLING_MS`."""
        ahead = EwmaMeter(now_ms)
        ahead.restore(self.snapshot, 0)
        at_ms = now_ms
        while ahead.rate(at_ms) > bound:
            at_ms = ahead._ticked_ms + TICK_MS
            if at_ms - now_ms >= FALLING_MS:
                return FALLING_MS
        return at_ms - now_ms

    def _tick(self, now_ms: int) -> None:
        due = (now_ms - self._ticked_ms) // TICK_MS
        if due <= 0:
            return
        self._ticked_ms += due * TICK_MS
        for _ in range(due):
            before, instant = self._rate, self._uncounted / (TICK_MS / 1000.0)
            self._rate = before + ALPHA * (instant - before) if self._ticked else instant
            self._ticked = True
            self._uncounted = 0.0
            if not instant and self._rate == before:
                break  # faded to the last bit, however many ticks are due
