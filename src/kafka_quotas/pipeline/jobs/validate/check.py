"""One quota bucket at one broker: the throttling in responses, and in the replay of the same events.

A broker answers a request under two quotas with the longer of two throttle times. The expected sum is therefore a
range: at least that of the bucket's own quota alone, at most that of all quotas that its requests may fall under.
"""

from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
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
class BucketCheck:
    """All comparisons of one bucket, with rates in the unit of the quota key.

    The counts of throttled requests are reported but not judged: at a rate close to the quota a request is throttled
    for a millisecond or not at all, and counts as much as one that waits for seconds.
    """

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
    simulated_throttle_ms: int | None
    """Lower end of the expected sum in ms, None if throttle times can't be compared."""
    simulated_at_most_ms: int | None
    throttle_error: float | None
    """Difference by the observed sum, from 0, None if only the replay throttles or they can't be compared."""
    observed_throttled: int
    simulated_throttled: int | None
    simulated_throttled_at_most: int | None
    scrapes: int
    """The scrapes with a rate."""
    scraped_rate: float | None
    """Average of the broker's own `byte_rate`, None without scrapes."""
    reckoned_rate: float | None
    """Average of our rate from the events over the same scrapes."""
    rate_error: float | None
    """Difference by the scraped average, from 0, None without scrapes or if only the events show traffic."""
    verdict: BucketVerdict
