"""What a request costs by how many of it a budget of thread time buys.

A broker that has a `request_percentage` for a client throttles it once its thread time within the quota's window is
more than that. So the number of requests until the first throttle time says what one of them takes, as the broker
itself accounts for it, I/O and network threads together; the throttle time says how far the last one went over.
**Source:** `ClientRequestQuotaManager`, `QuotaUtils.throttleTime` (4.x): delay = (observed - bound) / bound * window;
`Rate.windowSize`.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafka_quotas.core.cost_model import ApiCost
from kafka_quotas.core.quota_config import QuotaWindow

BUDGET_MS: Final = 20.0
"""Thread time that one measurement takes from the broker: some hundred requests. It has to be used up before it is
forgotten, so the less it is the slower a network may be."""


def budget_percentage(window: QuotaWindow) -> float:
    """The `request_percentage` that allows `BUDGET_MS` of thread time within the whole windows."""
    return 100.0 * BUDGET_MS / _whole_windows_ms(window)


def nanos_per_request(window: QuotaWindow, *, requests: int, elapsed_ms: float, throttle_ms: int) -> float:
    """What one of so many requests took of a thread, the last of which brought the first throttle time."""
    spanned_ms = _spanned_ms(window, elapsed_ms)
    allowed_ms = budget_percentage(window) / 100.0 * spanned_ms
    return allowed_ms * (1.0 + throttle_ms / spanned_ms) / requests * 1e6


def _spanned_ms(window: QuotaWindow, elapsed_ms: float) -> float:
    """The window in ms that a rate is divided by so long after its first record: whole windows short are added."""
    short = window.samples - 1 - int(elapsed_ms // window.window_ms)
    return max(elapsed_ms + max(short, 0) * window.window_ms, 1.0)


def _whole_windows_ms(window: QuotaWindow) -> float:
    return float(max(window.samples - 1, 1) * window.window_ms)


class Sized(NamedTuple):
    """A cost in ns of requests whose request and response have so many bytes."""

    nanos: float
    request_bytes: int
    response_bytes: int


def fitted(measured: Sequence[Sized]) -> ApiCost:
    """The cost per request and byte of one API, measured with small sizes first; no slope is below 0."""
    small, large = measured[0], measured[-1]
    request_slope = _slope(small, large, large.request_bytes - small.request_bytes)
    response_slope = _slope(small, large, large.response_bytes - small.response_bytes)
    if large.request_bytes - small.request_bytes > large.response_bytes - small.response_bytes:
        response_slope = 0.0
    else:
        request_slope = 0.0
    by_bytes = request_slope * small.request_bytes + response_slope * small.response_bytes
    return ApiCost(
        request_nanos=max(small.nanos - by_bytes, 0.0),
        request_byte_nanos=request_slope,
        response_byte_nanos=response_slope,
    )


def _slope(small: Sized, large: Sized, more_bytes: int) -> float:
    return max(large.nanos - small.nanos, 0.0) / more_bytes if more_bytes > 0 else 0.0


def typical(costs: Iterable[ApiCost]) -> ApiCost:
    """What an API costs that was not measured: the middle of those that were."""
    return ApiCost(request_nanos=statistics.median(cost.request_nanos for cost in costs))
