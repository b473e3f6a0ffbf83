"""Rates per second over a sliding window.

A rate is the sum over the samples divided by the window: the time since the oldest sample's start, plus one whole
window for every whole window short of `samples - 1`, and at least 1 ms. The count of whole windows is truncated
towards zero and to 32 bits, so it is negative where the clock went back.
**Source:** `Rate`, `SimpleRate` of Kafka 4.0; `MetricsUtils.convert`.
"""

from kafka_quotas.core.metrics.sampled_stat import WindowedSum
from kafka_quotas.core.metrics.throttle_time import narrow_to_int32


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
