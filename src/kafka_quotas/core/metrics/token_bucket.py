"""A bucket of tokens that fills with the bound per second up to the burst, and may go into debt.

Invariants: a new bucket holds 0 tokens at time 0: on a real clock its first refill fills it up to the burst, on a
clock that starts at 0 it is empty. The burst is `samples * window * bound`. A clock that goes back takes tokens away.
A new bound counts from the last refill on; while there is none, nothing is recorded.
**Source:** KIP-599; `TokenBucket` of Kafka 4.0.
"""

from kafka_quotas.core.model.quota_key import LONG_MAX


class TokenBucket:
    """The tokens of one bucket; below 0 nothing more is admitted by a strict quota."""

    __slots__ = ("_bound", "_burst", "_last_ms", "_per_second", "_samples", "_tokens", "_window_ms")

    def __init__(self, samples: int, window_ms: int, bound: float | None = None) -> None:
        self._tokens = 0.0
        self._last_ms = 0
        self._samples = samples
        self._window_ms = window_ms
        self.bound = bound

    @property
    def bound(self) -> float | None:
        """Tokens per second, None for no quota."""
        return self._bound

    @bound.setter
    def bound(self, bound: float | None) -> None:
        self._bound = None if bound is None else float(bound)
        self._per_second = 0.0 if bound is None else float(bound)
        self._burst = self._samples * (self._window_ms / 1000.0) * self._per_second

    @property
    def burst(self) -> float:
        """The most tokens it can hold; 0 without a quota."""
        return self._burst

    def reconfigure(self, samples: int, window_ms: int) -> None:
        """Nothing; the burst is another one from now on, and cuts the tokens with the next refill."""
        self._samples = samples
        self._window_ms = window_ms
        self.bound = self._bound

    @property
    def memory(self) -> tuple[float, ...]:
        """The figures that `remember` takes: the tokens, and when they were counted."""
        return (self._tokens, float(self._last_ms))

    def remember(self, memory: tuple[float, ...], shift_ms: int) -> None:
        """Nothing; the bucket is what another one was, `shift_ms` later. Raises `ValueError` for other figures."""
        self._tokens, last_ms = memory
        self._last_ms = int(last_ms) + shift_ms

    def measure(self, now_ms: int) -> float:
        """The tokens after a refill; as many as fit into 64 bits where there is no quota."""
        if self._bound is None:
            return float(LONG_MAX)
        self._tokens = tokens = self.peek(now_ms)
        self._last_ms = now_ms
        return tokens

    def record(self, value: float, now_ms: int) -> None:
        """Nothing; after a refill the value is taken out, or put back where it is negative, up to the burst."""
        if self._bound is None:
            return
        tokens = self.measure(now_ms) - value
        self._tokens = min(tokens, self._burst)

    def peek(self, now_ms: int) -> float:
        """The tokens that `measure` would find, with none refilled by asking."""
        if self._bound is None:
            return float(LONG_MAX)
        tokens = self._tokens + self._per_second * ((now_ms - self._last_ms) / 1000.0)
        return min(tokens, self._burst)
