"""A batch of events as charges of quotas: columns of NumPy, and dense numbers for who was charged.

An event is charged to request time where it has thread time, and to the quota of its own type; to none where exempt.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.pipeline.arrow_compute import compute as pc

Client = tuple[str, int, str, str]
"""Cluster, broker id, user and client-id."""
_PERCENT_PER_MS = 0.1
"""A thread busy for a whole second uses 100 %: Kafka records request time so."""
_CLIENT_COLUMNS = ("cluster", "broker_id", "user", "client_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """Charges of one quota type in order of time; `clients` is the number of each one's client in `names`."""

    quota_type: QuotaType
    names: tuple[Client, ...]
    clients: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    amounts: NDArray[np.float64]
    throttle_ms: NDArray[np.int64]


def charges_of(events: pa.Table) -> Iterator[Charges]:
    """The charges of each quota type that has any."""
    charged = events.filter(pc.invert(events["is_exempt"]))
    if charged.num_rows == 0:
        return
    in_order = np.argsort(_numbers(charged["ts_ms"]), kind="stable")
    charged = charged.take(pa.array(in_order)).combine_chunks()
    percent = _numbers(pc.fill_null(charged["thread_ms"], 0.0)) * _PERCENT_PER_MS
    names, clients = _clients(charged)
    every = Charges(
        quota_type=QuotaType.REQUEST,
        names=names,
        clients=clients,
        times_ms=_numbers(charged["ts_ms"]),
        amounts=percent,
        throttle_ms=_numbers(charged["throttle_ms"]),
    )
    columns = {
        QuotaType.PRODUCE: charged["bytes"],
        QuotaType.FETCH: charged["bytes"],
        QuotaType.CONTROLLER_MUTATION: charged["mutations"],
    }
    for quota_type, column in columns.items():
        picked = _numbers(pc.equal(charged["quota_type"], quota_type.value))
        if picked.any():
            yield _picked(every, quota_type, picked, _numbers(column))
    timed = _numbers(pc.is_valid(charged["thread_ms"]))
    if timed.any():
        yield _picked(every, QuotaType.REQUEST, timed, percent)


def _picked(every: Charges, quota_type: QuotaType, picked: NDArray[np.bool_], amounts: NDArray[Any]) -> Charges:
    return replace(
        every,
        quota_type=quota_type,
        clients=every.clients[picked],
        times_ms=every.times_ms[picked],
        amounts=amounts[picked].astype(np.float64),
        throttle_ms=every.throttle_ms[picked],
    )


def _clients(charged: pa.Table) -> tuple[tuple[Client, ...], NDArray[np.int64]]:
    """Every client once, and the number of the client of each row."""
    combined = np.zeros(charged.num_rows, dtype=np.int64)
    for name in _CLIENT_COLUMNS:
        encoded = charged[name].combine_chunks().dictionary_encode()
        combined = combined * len(encoded.dictionary) + _numbers(encoded.indices)
        combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)  # dense again: products stay small
    first = np.unique(combined, return_index=True)[1]
    rows = charged.select(_CLIENT_COLUMNS).take(pa.array(first)).to_pylist()
    names = tuple((row["cluster"], row["broker_id"], row["user"], row["client_id"]) for row in rows)
    return names, combined


def _numbers(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return array
