"""One quota bucket at one broker: what the brokers' answers say, and what the replay of the same events says.

A request that falls under two quotas is answered with the longer of two throttle times. So what is expected is a range:
from the bucket's own quota alone to the sum over all quotas that its requests may fall under.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_quotas.core.quotas.quota_manager import QuotaType

SLACK_SHARE: Final = 0.01
"""Throttle times that differ by less than this share of the bucket's active time count as equal."""


class Verdict(StrEnum):
    """What came of a comparison."""

    MET = "met"
    MISSED = "missed"
    OPEN = "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleCheck:
    """Sums of throttle times in ms; what is expected is from `low_ms` to `high_ms`.

    The counts of throttled requests, expected from `low_n` to `high_n`, are told and not judged: at a rate of all but
    the quota a request is throttled for a millisecond or not at all, and counts as much as one that waits for seconds.
    """

    observed_ms: int
    low_ms: int
    high_ms: int
    active_s: int
    observed_n: int = 0
    low_n: int = 0
    high_n: int = 0

    @property
    def expected_ms(self) -> int:
        """What the replay says that is nearest to what was observed."""
        return min(max(self.observed_ms, self.low_ms), self.high_ms)

    @property
    def error(self) -> float:
        """The difference by what was observed, from 0; infinite where only the replay throttles."""
        apart = abs(self.expected_ms - self.observed_ms)
        if not apart:
            return 0.0
        return apart / self.observed_ms if self.observed_ms else math.inf

    def holds(self, tolerance: float) -> bool:
        """Whether the difference is tolerated, or too small to matter."""
        slack_ms = SLACK_SHARE * self.active_s * 1000
        return self.error <= tolerance or abs(self.expected_ms - self.observed_ms) <= slack_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCheck:
    """Averages over the same scrapes, in bytes/s: the broker's own `byte_rate`, and ours from the events."""

    scrapes: int
    scraped: float
    reckoned: float

    @property
    def error(self) -> float:
        """The difference by what was scraped, from 0; infinite where only we see traffic."""
        if self.scraped == self.reckoned:
            return 0.0
        return abs(self.reckoned - self.scraped) / self.scraped if self.scraped else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketCheck:
    """All that is compared of one bucket; rates in the unit of the quota key, what can't be compared is None.

    `peak` is the largest rate over the quota window, `limit` None where nothing is set.
    """

    cluster: str
    broker_id: int
    quota_type: QuotaType
    user: str | None
    client_id: str | None
    limit: float | None
    peak: float
    observed_throttle_ms: int
    observed_throttled: int
    throttle: ThrottleCheck | None
    rate: RateCheck | None

    @property
    def is_capped(self) -> bool:
        """Whether the quota bounds the rate itself: fetches are refused until they fit."""
        return self.quota_type is QuotaType.FETCH and self.limit is not None

    def exceeds(self, tolerance: float) -> bool:
        """Whether more was admitted than the quota lets through."""
        return self.is_capped and self.limit is not None and self.peak > self.limit * (1 + tolerance)

    def verdict(self, tolerance: float) -> Verdict:
        """Whether all that can be compared is within the tolerance."""
        throttle_holds = self.throttle is None or self.throttle.holds(tolerance)
        rate_holds = self.rate is None or self.rate.error <= tolerance
        if not throttle_holds or not rate_holds or self.exceeds(tolerance):
            return Verdict.MISSED
        is_compared = self.throttle is not None or self.rate is not None or self.is_capped
        return Verdict.MET if is_compared else Verdict.OPEN
