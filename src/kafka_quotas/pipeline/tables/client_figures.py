"""What is known of clients without reading their events: how many charges each had, and the most in one second.

Contract: one row per client, with `NAMES` and the columns of `FIGURES` for each of `CHARGED_TYPES`, none null.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import NAMES
from kafka_quotas.pipeline.tables.schemas import CHARGED_TYPES, CLIENTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

Int64s = NDArray[np.int64]

FIGURES: Final = ("events", "amount", "peak", "first_ms", "last_ms")
_CLIENT: Final = ("client", *NAMES)
STORED: Final = (*_CLIENT, *(f"{kind}_{figure}" for kind in CHARGED_TYPES for figure in FIGURES))
"""Columns of `clients` that figures are made of, and their own."""
_SECOND_MS: Final = 1000
_MERGED: Final = {"events": "sum", "amount": "sum", "first_ms": "min", "last_ms": "max"}


def client_figures(snapshot: FolderSnapshot) -> pa.Table:
    """Return the figures of all clients, by number, over all ingests.

    Raises:
        KafkaQuotasError: The table can't be read.
    """
    return merged_figures(snapshot.read(CLIENTS, columns=STORED))


def merged_figures(rows: pa.Table) -> pa.Table:
    """Return the figures of clients, by number, from `STORED` columns of all their ingests."""
    names, rows = STORED[len(_CLIENT) :], rows.sort_by("client")
    sums = [(name, _MERGED[name.removeprefix(f"{kind}_")]) for kind in CHARGED_TYPES for name in _summed(kind)]
    merged = rows.group_by(list(_CLIENT)).aggregate(sums).sort_by("client")
    merged = merged.rename_columns([*_CLIENT, *(name for name, _ in sums)])
    for kind in CHARGED_TYPES:
        merged = merged.append_column(f"{kind}_peak", pa.array(_peaks(rows, kind)))
    zeros = [pc.fill_null(merged[name], 0) for name in names]
    return pa.table([*(merged[name] for name in _CLIENT), *zeros], [*_CLIENT, *names])


def _summed(kind: str) -> list[str]:
    return [f"{kind}_{figure}" for figure in _MERGED]


def _peaks(rows: pa.Table, kind: str) -> NDArray[np.float64]:
    """Return the most that each client may have been charged in one second, from rows by client.

    A second may be in several ingests. The peaks of those add up that have it between their first and last one.
    """
    clients = rows["client"].to_numpy()
    own = {name: pc.fill_null(rows[f"{kind}_{name}"], 0).to_numpy() for name in ("peak", "first_ms", "last_ms")}
    seconds = np.concatenate([own["first_ms"] // _SECOND_MS, own["last_ms"] // _SECOND_MS + 1])
    changes = np.concatenate([own["peak"], -own["peak"]])
    order = np.lexsort((changes, seconds, np.tile(clients, 2)))  # what ends comes before what begins
    at_once = np.cumsum(changes[order])  # each client's end at 0
    is_first = np.append(True, clients[1:] != clients[:-1])[: clients.size]
    starts = np.flatnonzero(is_first)
    found: NDArray[np.float64] = (
        np.maximum.reduceat(at_once, 2 * starts).astype(np.float64) if starts.size else np.empty(0)
    )
    return found
