"""One quota bucket at one broker: the throttling in responses, and in the replay of the same events.

A broker answers a request under two quotas with the longer of two throttle times. The expected sum is therefore a
range: at least that of the bucket's own quota alone, at most that of all quotas that its requests may fall under.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatePlan:
    """The quotas that were in force, the brokers' windows, and the tolerance."""

    quotas: Proposal
    tolerance: float = 0.1
    """Tolerated difference by the observed figure, from 0."""
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise UsageError(f"the tolerance must be 0 or more, not {self.tolerance}", hint="--tolerance 0.1 is 10 %")


class BucketVerdict(StrEnum):
    """The result of a comparison."""

    MET = "met"
    MISSED = "missed"
    OPEN = "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleCheck:
    """Observed and expected sums of throttle times of one bucket.

    The counts of throttled requests are reported but not judged: at a rate close to the quota a request is throttled
    for a millisecond or not at all, and counts as much as one that waits for seconds.
    """

    observed_ms: int
    """Observed sum of throttle times in ms."""
    low_ms: int
    """Lower end of the expected sum in ms."""
    high_ms: int
    """Upper end of the expected sum in ms."""
    observed_n: int = 0
    """Observed throttled requests."""
    low_n: int = 0
    """Lower end of the expected throttled requests."""
    high_n: int = 0
    """Upper end of the expected throttled requests."""

    @property
    def expected_ms(self) -> int:
        """The expected sum that is nearest to the observed one, in ms."""
        return min(max(self.observed_ms, self.low_ms), self.high_ms)

    @property
    def error(self) -> float:
        """The difference by the observed sum, from 0, and infinite where only the replay throttles."""
        apart = abs(self.expected_ms - self.observed_ms)
        if not apart:
            return 0.0
        return apart / self.observed_ms if self.observed_ms else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCheck:
    """Averages over the same scrapes, in bytes/s."""

    scrapes: int
    scraped: float
    """Average of the broker's own `byte_rate`."""
    reckoned: float
    """Average of our rate from the events."""

    @property
    def error(self) -> float:
        """The difference by the scraped average, from 0, and infinite where only the events show traffic."""
        if self.scraped == self.reckoned:
            return 0.0
        return abs(self.reckoned - self.scraped) / self.scraped if self.scraped else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketCheck:
    """All comparisons of one bucket, with rates in the unit of the quota key."""

    DOCUMENT: ClassVar = (
        "cluster broker_id quota_type user client_id limit peak observed_throttle_ms "
        "simulated_throttle_ms=throttle.low_ms simulated_at_most_ms=throttle.high_ms throttle_error "
        "observed_throttled simulated_throttled=throttle.low_n simulated_throttled_at_most=throttle.high_n scrapes "
        "scraped_rate=rate.scraped reckoned_rate=rate.reckoned rate_error verdict"
    )
    cluster: str
    broker_id: int
    quota_type: QuotaType
    user: str | None
    """User, None if the bucket is not per user."""
    client_id: str | None
    """Client-id, None if the bucket is not per client-id."""
    limit: float | None
    """Quota, None if nothing is set."""
    peak: float
    """Largest rate over the quota window."""
    observed_throttle_ms: int
    observed_throttled: int
    throttle: ThrottleCheck | None
    """Comparison of throttle times, None if they can't be compared."""
    rate: RateCheck | None
    """Comparison of rates, None without scrapes."""
    verdict: BucketVerdict
    is_exceeded: bool
    """Whether the broker admitted more than the quota allows, where the quota bounds the rate itself."""

    @property
    def throttle_error(self) -> float | None:
        """The error of the throttle times, None if they can't be compared or only the replay throttles."""
        return None if self.throttle is None else _finite(self.throttle.error)

    @property
    def scrapes(self) -> int:
        """The scrapes with a rate."""
        return 0 if self.rate is None else self.rate.scrapes

    @property
    def rate_error(self) -> float | None:
        """The error of the rate, None without scrapes or if only the events show traffic."""
        return None if self.rate is None else _finite(self.rate.error)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None
