"""The columns that a replay adds up, per row and limit."""

from typing import Final

from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.ring import FAR_MS

EVENTS: Final = 0
THROTTLED: Final = 1
REFUSALS: Final = 2
THROTTLE_MS: Final = 3
LONGEST_MS: Final = 4
FIRST_MS: Final = 5
"""Time of the first throttled event, `FAR_MS` for never."""
LATE_MS: Final = 6
BEGIN_MS: Final = 7
END_MS: Final = 8
"""End of the last event and of its delay."""
COUNTS: Final = 9

AMOUNT: Final = 0
PEAK: Final = 1
AMOUNTS: Final = 2


@compiled
def tally_throttle(counts, t, now_ms, throttle_ms):
    """Count a throttle time above 0."""
    counts[t + THROTTLE_MS] += throttle_ms
    if throttle_ms > counts[t + LONGEST_MS]:
        counts[t + LONGEST_MS] = throttle_ms
    if now_ms < counts[t + FIRST_MS]:
        counts[t + FIRST_MS] = now_ms


@compiled
def tally_event(counts, t, now_ms, end_ms, late_ms, throttled):
    """Count an event that happened at `now_ms` and whose delay ends at `end_ms`."""
    counts[t + EVENTS] += 1
    if throttled:
        counts[t + THROTTLED] += 1
    counts[t + LATE_MS] += late_ms
    if now_ms < counts[t + BEGIN_MS]:
        counts[t + BEGIN_MS] = now_ms
    if end_ms > counts[t + END_MS]:
        counts[t + END_MS] = end_ms


FRESH: Final = (0, 0, 0, 0, 0, FAR_MS, 0, FAR_MS, -FAR_MS)
"""The counts of a row without events."""
