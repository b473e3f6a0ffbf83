"""The window settings of a quota, with Kafka's names, and the throttle times of the last minute.

Invariants: both figures of a window are whole and at least 1. The default is Kafka's, 11 samples of 1 s.

**Source:** `QuotaConfig` and `ClientQuotaManagerConfig` (4.x): `quota.window.num`, `quota.window.size.seconds` and, for
controller mutations, the same two under `controller.`.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from kafka_quotas.core.described import Described
from kafka_quotas.core.errors import UsageError

WINDOW_NUM: Final = "quota.window.num"
WINDOW_SIZE_SECONDS: Final = "quota.window.size.seconds"
CONTROLLER_WINDOW_NUM: Final = "controller.quota.window.num"
CONTROLLER_WINDOW_SIZE_SECONDS: Final = "controller.quota.window.size.seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWindow:
    """The window of a rate: `samples` samples of `window_s` seconds each, including the current one.

    Raises:
        UsageError: A figure below 1.
    """

    samples: int = 11
    window_s: int = 1

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UsageError(f"{WINDOW_NUM} must be at least 1, not {self.samples}")
        if self.window_s < 1:
            raise UsageError(f"{WINDOW_SIZE_SECONDS} must be at least 1, not {self.window_s}")

    @property
    def window_ms(self) -> int:
        """The length of one sample in milliseconds."""
        return self.window_s * 1000


DEFAULT_WINDOW: Final = QuotaWindow()


MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentThrottling:
    """The throttle times of a bucket in the last minute."""

    DOCUMENT: ClassVar = "times total_ms held_ms share"
    times: Annotated[int, Described(text="throttle times")]
    total_ms: Annotated[int, Described(text="their sum")]
    """It may be longer than the minute if several connections wait."""
    held_ms: Annotated[int, Described(text="the part of the minute in which any client waited")]

    @property
    def share(self) -> Annotated[float, Described(text="that part, from 0 to 1")]:
        """The part of the minute in which any client of the bucket waited, 1 for all of it."""
        return min(1.0, self.held_ms / MINUTE_MS)


NOT_THROTTLED: Final = RecentThrottling(times=0, total_ms=0, held_ms=0)
