"""Clients: their numbers, and what is known of them without reading their events.

A number is the same on every machine and in every engine, with no table to ask. It has 63 bits: 12 of the cluster and
broker and 9 of the user, each the beginning of a digest, and 42 of a digest of all names. Clients of one broker are
neighbours therefore, and those of one user among them: what may share a quota is a range of numbers, and a range is a
few row groups of a sorted file. Two clients have the same number once in some 900 data folders where one user has
100,000 client-ids at one broker, and once in some 4,000 where a million clients of a broker have users of their own. An
ingest that meets such two refuses its files.

Figures are a row per client, with `NAMES` and the columns of `FIGURES` for each of `CHARGED_TYPES`, none null: how many
charges it had, and the most in one second.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.client_ranges import NAMES
from kafka_quotas.pipeline.tables.schemas import CHARGED_TYPES, CLIENTS
from kafka_quotas.pipeline.tables.snapshot import FolderSnapshot

_USER_BITS: Final = 9
_CLIENT_BITS: Final = 42
BROKER_SHIFT: Final = _USER_BITS + _CLIENT_BITS
"""Bits to the right of a broker's part of the number."""
USER_SHIFT: Final = _CLIENT_BITS
"""Bits to the right of a user's part of the number."""
_BROKER_BITS: Final = 63 - BROKER_SHIFT


def client_number(*, cluster: str, broker_id: int, user: str, client_id: str) -> int:
    """Return the number of a client at a broker, from 0 to 2^63 - 1."""
    broker = _bits(f"{cluster}\0{broker_id}", _BROKER_BITS)
    # the length says where one name ends and the next begins, for names may hold any character
    client = _bits(f"{cluster}\0{broker_id}\0{len(user)}\0{user}{client_id}", _CLIENT_BITS)
    return (broker << BROKER_SHIFT) | (_bits(user, _USER_BITS) << USER_SHIFT) | client


def shared_shift(columns: Iterable[str]) -> int:
    """Return in how many bits the numbers of clients may differ that share a bucket.

    The columns distinguish buckets: those of `buckets.proposal.partition_columns`.
    """
    known = set(columns)
    if "user" not in known:
        return BROKER_SHIFT
    return 0 if "client_id" in known else USER_SHIFT


@lru_cache(maxsize=1 << 16)
def _bits(text: str, count: int) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> (64 - count)


Int64s = NDArray[np.int64]

FIGURES: Final = ("events", "amount", "peak", "first_ms", "last_ms")
_CLIENT: Final = ("client", *NAMES)
STORED: Final = (*_CLIENT, *(f"{kind}_{figure}" for kind in CHARGED_TYPES for figure in FIGURES))
"""Columns of `clients` that figures are made of, and their own."""
_SECOND_MS: Final = 1000
_MERGED: Final = {"events": "sum", "amount": "sum", "first_ms": "min", "last_ms": "max"}


def client_figures(snapshot: FolderSnapshot) -> pa.Table:
    """Return the figures of all clients, by number, over all ingests."""
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
