"""A batch of events as charges of quotas, by time and with the charged client."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets import charges as charged

Client = tuple[str, int, str, str]
"""Cluster, broker id, user and client-id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCharges:
    """Charges of one quota type by time."""

    quota_type: QuotaType
    names: tuple[Client, ...]
    """Clients by number."""
    clients: NDArray[np.int64]
    """Each charge's client, as an index of `names`."""
    times_ms: NDArray[np.int64]
    """Times in ms since 1970."""
    amounts: NDArray[np.float64]
    throttle_ms: NDArray[np.int64]
    """Throttle times in the events, in ms."""


def charges_of(events: pa.Table) -> Iterator[StreamCharges]:
    """Yield the charges of each quota type that has any."""
    clients = charged.ClientNumbers()
    numbers = clients.of(events)
    throttle_ms = charged.numbers(events["throttle_ms"])
    for each in charged.charges_of(events, numbers, lambda _: True):
        yield StreamCharges(
            quota_type=each.quota_type,
            names=tuple(clients.clients),
            clients=each.clients,
            times_ms=each.times_ms,
            amounts=each.amounts,
            throttle_ms=throttle_ms[each.events],
        )
