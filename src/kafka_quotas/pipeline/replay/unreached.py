"""Clients that reach no limit of a plan, by their figures: their events need not be read.

A measured rate exceeds the most in one second only so far. Its samples have amounts of the closed interval from the
start of the oldest sample to now, of E seconds. Such an interval touches at most `ceil(E) + 1` whole seconds of the
clock, and the sum is divided by at least `max(E, k)` seconds, where `k = (n - 1) W` is a whole number. The ratio is at
most `(k + 1) / k` up to `E = k`, below `(k + 2) / k` from there to the next second, and lower after that. A bucket
whose clients' peaks add up to P therefore never measures `P (k + 2) / k` or more: `12 / 10` of P with Kafka's defaults.
"""

import math
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import amount_of
from kafka_quotas.pipeline.replay.task import ReplayPlan, clients_of_figures, passes_of
from kafka_quotas.pipeline.tables.schemas import CHARGED_TYPES

_ROUNDING: Final = 1 - 1e-9
"""More than sums of doubles in the order of events are off."""


def are_unreached(figures: pa.Table, plan: ReplayPlan) -> NDArray[np.bool_]:
    """Check of each client whether all buckets that its events are charged to stay below all their limits.

    So do the buckets of every client that shares one of these. Clients without charges are among them.

    Args:
        figures: Figures of all clients (`client_figures`).
        plan: The plan, none of whose clients is unreached where its quotas change with time.
    """
    passes = passes_of(plan)
    is_needed = np.zeros(figures.num_rows, dtype=bool)
    if any(each.later for each in plan.proposals) or any(each.value not in CHARGED_TYPES for each in passes):
        return is_needed
    clients, buckets = clients_of_figures(figures), []
    for quota_type, of_type in passes.items():
        highest = _highest_rates(figures, quota_type, plan)
        for each in of_type:
            rows, limits = each.rows_and_limits(clients)
            sums = np.bincount(rows, weights=highest, minlength=limits.size)
            is_needed |= ~(sums < limits * _ROUNDING)[rows]
            buckets.append(rows)
    return ~_with_sharers(is_needed, buckets)


def highest_of_peak(window: QuotaWindow) -> float:
    """Return how many times the most in one second a rate stays below, infinity for a single sample."""
    least_s = (window.samples - 1) * window.window_s
    return (least_s + 2) / least_s if least_s else math.inf


def _highest_rates(figures: pa.Table, quota_type: QuotaType, plan: ReplayPlan) -> NDArray[np.float64]:
    """Return the rate that each client can't exceed, in the unit of the quota, 0 without charges."""
    kind = quota_type.value
    peaks = amount_of(figures[f"{kind}_peak"].to_numpy(), quota_type)
    # tokens are judged one by one: who changed any topic is replayed
    factor = math.inf if quota_type is QuotaType.CONTROLLER_MUTATION else highest_of_peak(plan.window)
    found = np.zeros(peaks.size)
    is_charged = figures[f"{kind}_events"].to_numpy() > 0
    found[is_charged] = np.maximum(peaks[is_charged], np.finfo(np.float64).tiny) * factor
    return found


def _with_sharers(is_needed: NDArray[np.bool_], buckets: list[NDArray[np.int32]]) -> NDArray[np.bool_]:
    """Add all clients that share a bucket with a needed one, over all quota types."""
    while True:
        found = is_needed
        for rows in buckets:
            found = found | (np.bincount(rows, weights=found) > 0)[rows]
        if (found == is_needed).all():
            return found
        is_needed = found
