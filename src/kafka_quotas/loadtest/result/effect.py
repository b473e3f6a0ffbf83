"""The effect of a scenario's quotas on a control client, from runs of the same load with and without them."""

from dataclasses import dataclass

LEAST_EFFECT = 1.2
"""How many times shorter the quotas must make a control client's p90, for them to be what spares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEffect:
    """The p90 of a control client beside the others, without the quotas as a multiple of that with them.

    `low` and `high` bound the multiple with a confidence of 95 %. It is of the p90, since the p99 of a short run is a
    handful of requests, and scatters too much to compare.
    """

    with_us: tuple[int, ...]
    """The p90 of each run with the quotas, in microseconds."""
    without_us: tuple[int, ...]
    """The p90 of each run without them."""
    ratio: float
    low: float
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether the quotas shorten it by `LEAST_EFFECT` at least, whatever of the interval is true."""
        return self.low >= LEAST_EFFECT

    @property
    def is_refuted(self) -> bool:
        """Whether they shorten it by less, whatever of the interval is true."""
        return self.high < LEAST_EFFECT

    @property
    def evidence(self) -> str:
        """The multiple with its interval, in words."""
        runs = f"{len(self.with_us)} runs with and {len(self.without_us)} without"
        interval = f"95 % interval {self.low:.3g} to {self.high:.3g}, from {runs}; {LEAST_EFFECT:g} wanted"
        return f"p90 {self.ratio:.3g} times as long without the quotas ({interval})"
