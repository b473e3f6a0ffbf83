"""A bucket of tokens that fills with the bound per second up to the burst, and may go into debt.

Invariants: a new bucket holds 0 tokens at time 0: on a real clock its first refill fills it up to the burst, on a
clock that starts at 0 it is empty. The burst is `samples * window * bound`. A clock that goes back takes tokens away.
A new bound counts from the last refill on. Without a bound the bucket records nothing.

**Source:** KIP-599; `TokenBucket` of Kafka 4.0.
"""

from kafka_quotas.core.model.quota_key import LONG_MAX


class TokenBucket:
    """The tokens of one bucket, below 0 while a strict quota admits nothing more."""

    __slots__ = ("_bound", "_burst", "_last_ms", "_per_second", "_samples", "_tokens", "_window_ms")

    def __init__(self, samples: int, window_ms: int, bound: float | None = None) -> None:
        self._tokens = 0.0
        self._last_ms = 0
        self._samples = samples
        self._window_ms = window_ms
        self.bound = bound

    @property
    def bound(self) -> float | None:
        """The tokens per second, or None for no quota."""
        return self._bound

    @bound.setter
    def bound(self, bound: float | None) -> None:
        self._bound = None if bound is None else float(bound)
        self._per_second = 0.0 if bound is None else float(bound)
        self._burst = self._samples * (self._window_ms / 1000.0) * self._per_second

    @property
    def burst(self) -> float:
        """The capacity in tokens, 0 without a quota."""
        return self._burst

    def reconfigure(self, samples: int, window_ms: int) -> None:
        """Set the window, and with it the burst, which cuts the tokens with the next refill."""
        self._samples = samples
        self._window_ms = window_ms
        self.bound = self._bound

    @property
    def snapshot(self) -> tuple[float, ...]:
        """The snapshot for `restore`: the tokens and the time of that count."""
        return (self._tokens, float(self._last_ms))

    def restore(self, snapshot: tuple[float, ...], shift_ms: int) -> None:
        """Restore the state of another bucket, with its time moved by `shift_ms`.

        Raises:
            ValueError: Figures of another kind of bucket.
        """
        self._tokens, last_ms = snapshot
        self._last_ms = int(last_ms) + shift_ms

    def measure(self, now_ms: int) -> float:
        """Refill the bucket and return its tokens, or the 64-bit maximum without a quota."""
        if self._bound is None:
            return float(LONG_MAX)
        self._tokens = tokens = self.peek(now_ms)
        self._last_ms = now_ms
        return tokens

    def record(self, value: float, now_ms: int) -> None:
        """Refill the bucket and take a value out, or put a negative one back in, up to the burst."""
        if self._bound is None:
            return
        tokens = self.measure(now_ms) - value
        self._tokens = min(tokens, self._burst)

    def peek(self, now_ms: int) -> float:
        """Return the tokens that `measure` would find, without a refill."""
        if self._bound is None:
            return float(LONG_MAX)
        tokens = self._tokens + self._per_second * ((now_ms - self._last_ms) / 1000.0)
        return min(tokens, self._burst)
