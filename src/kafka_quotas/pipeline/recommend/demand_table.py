"""The demands of many clients in columns: a row for each quota type, client and broker.

Contract: rows of a client follow each other, by broker, and names are empty if clients of all users or client-ids
count as one. All rows of a client are in the same table.

A client needs at a broker the lowest limit that throttles it for no longer than tolerated, and above which no tried
limit does: its peak where every one does, or none was tried, for at its peak rate a client is not throttled. Growth is
in it, and the busiest hour of the week. Where the client was held back while it was recorded it is what its throttle
times imply: what was replayed is what it was let through, and no limit would have held that back much. Where an
incident, or the time before a decline, is left out, the busiest hour of the rest counts alone, for all was replayed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.recommend.demand import HELD_SHARE, BrokerDemand, Demand, ImpliedDemand
from kafka_quotas.pipeline.tables.arrow import compute as pc

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]
Limits = Mapping[QuotaType, Sequence[float]]
"""Tried limits of each quota type, ascending."""

KEYS: Final = ("quota_type", "user", "client_id", "broker_id")
TRIED: Final = "throttle_ms"
"""The column of a sweep with the throttle times under each of its steps, a list of as many as there are."""
NOT_LIMITED: Final = -1
"""What it has of clients that a step does not limit: Kafka has no default for an empty name."""
HELD_AT: Final = "held_at"
"""The column of the highest tried limit that throttles for longer than tolerated, below 0 for none."""
SUFFICES: Final = "suffices"
"""The column of the next higher tried limit, infinity for none."""
_LEFT_OUT: Final = ("declined_from", "incident_ms", "incident_s", "incident_rate")
_IMPLIED: Final = ("low", "high", "growth", "busiest_hour", "days", "held_share", "is_unknown", *_LEFT_OUT)


def demand_rows(buckets: pa.Table, *, cluster: str, seconds: int) -> pa.Table:
    """Return the demands of a cluster's buckets, without trials.

    `seconds` is the length of the recording.
    """
    own = buckets.filter(pc.equal(buckets["cluster"], cluster))
    active_s = np.maximum(np.rint(own["active_share"].to_numpy() * seconds), 1).astype(np.int64)
    found = own.select([*KEYS, "p50", "p99", "max", "demand", *_IMPLIED]).append_column("active_s", pa.array(active_s))
    untried = np.full(own.num_rows, np.inf)
    return found.append_column(HELD_AT, pa.array(-untried)).append_column(SUFFICES, pa.array(untried))


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows by `KEYS`."""
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in KEYS])).combine_chunks()


def with_sweep(rows: pa.Table, tried: pa.Table, *, limits: Limits, tolerated_share: float) -> pa.Table:
    """Return demands with what a sweep over these limits adds to what is known of them."""
    rows = in_order(rows)
    places, throttle_ms = places_in(rows, tried), throttle_times_ms(tried)
    held_at, suffices = rows[HELD_AT].to_numpy().copy(), rows[SUFFICES].to_numpy().copy()
    for kind, steps in limits.items():
        own = np.flatnonzero(_is_of(rows, kind) & (places >= 0))
        own = own[throttle_ms[places[own], 0] != NOT_LIMITED]
        tried_s = throttle_ms[places[own], : len(steps)] / 1000
        is_held = tried_s / rows["active_s"].to_numpy()[own, None] > tolerated_share
        highest = np.where(is_held.any(axis=1), len(steps) - np.argmax(is_held[:, ::-1], axis=1), 0)
        bounds = np.array([-np.inf, *steps, np.inf])
        known, held = suffices[own], np.maximum(held_at[own], bounds[highest])
        found = np.minimum(*(np.where(each > held, each, np.inf) for each in (known, bounds[highest + 1])))
        held_at[own], suffices[own] = held, found
    return (
        rows.drop_columns([HELD_AT, SUFFICES])
        .append_column(HELD_AT, pa.array(held_at))
        .append_column(SUFFICES, pa.array(suffices))
    )


def places_in(rows: pa.Table, others: pa.Table) -> Int64s:
    """Return the place of each row's client and broker in another table, -1 for none."""
    wanted = rows.select(list(KEYS)).append_column("row", pa.array(np.arange(rows.num_rows)))
    known = others.select(list(KEYS)).append_column("place", pa.array(np.arange(others.num_rows)))
    both = wanted.join(known, list(KEYS), join_type="inner", use_threads=False)
    found = np.full(rows.num_rows, -1)
    found[both["row"].to_numpy()] = both["place"].to_numpy()
    return found


def throttle_times_ms(tried: pa.Table) -> Int64s:
    """Return the throttle times of a sweep, a line for each row and a column for each step."""
    times = tried[TRIED].combine_chunks()
    found: Int64s = times.flatten().to_numpy().reshape(-1, tried.schema.field(TRIED).type.list_size)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients of one quota type that used anything, in parallel arrays and the order of the rows."""

    rows: pa.Table
    """Their demands, row by row."""
    starts: Int64s
    """The first row of each client."""
    needed: Floats
    """Limit that each needs at its busiest broker."""
    replayed: Floats
    """Limit below which each would be throttled for longer than tolerated, by what was tried alone."""
    peak: Floats
    is_held: Mask
    """Whether each was held back while it was recorded."""
    is_unknown: Mask
    """Whether each was held back for so long that its demand is unknown."""
    is_partial: Mask
    """Whether an incident or the time before a decline is left out of the need of each."""

    @classmethod
    def of(cls, rows: pa.Table, kind: QuotaType) -> "Clients":
        """Return those of a quota type in a table of demands."""
        own = rows.filter(pa.array(_is_of(rows, kind)))
        starts = _starts(own)
        peaks = np.maximum.reduceat(own["max"].to_numpy(), starts) if starts.size else np.empty(0)
        lengths = np.diff(np.append(starts, own.num_rows))
        own = own.filter(pa.array(np.repeat(peaks > 0, lengths)))
        lengths = lengths[peaks > 0]
        starts = np.cumsum(lengths) - lengths
        needed, replayed, is_held, is_partial = _needs(own)

        def largest(values: NDArray[Any]) -> NDArray[Any]:
            return np.maximum.reduceat(values, starts) if starts.size else values[:0]

        return cls(
            rows=own,
            starts=starts,
            needed=largest(needed),
            replayed=largest(replayed),
            peak=peaks[peaks > 0],
            is_held=largest(is_held),
            is_unknown=_unknown(own, is_held, lengths),
            is_partial=largest(is_partial),
        )

    def names(self) -> pa.Table:
        """Return the user and client-id of each."""
        return self.rows.select(["user", "client_id"]).take(pa.array(self.starts))

    def chosen(self, mask: Mask) -> pa.Table:
        """Return the demands of those that a mask picks."""
        lengths = np.diff(np.append(self.starts, self.rows.num_rows))
        return self.rows.filter(pa.array(np.repeat(mask, lengths)))

    def at_brokers(self, function: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """Return each client's sum, minimum or maximum of the values of its rows."""
        found: NDArray[Any] = function.reduceat(values, self.starts) if self.starts.size else values[:0]
        return found


def demands_of(rows: pa.Table) -> list[Demand]:
    """Return the clients in a table of demands one by one."""
    brokers: dict[tuple[str, str, str], list[BrokerDemand]] = defaultdict(list)
    for row, needed in zip(rows.to_pylist(), _needs(rows)[0].tolist(), strict=True):
        brokers[row["quota_type"], row["user"], row["client_id"]].append(
            BrokerDemand(
                broker_id=row["broker_id"],
                p50=row["p50"],
                p99=row["p99"],
                peak=row["max"],
                active_s=row["active_s"],
                needed=needed,
                implied=_implied(row),
            )
        )
    return [
        Demand(quota_type=QuotaType(kind), user=user or None, client_id=client_id or None, brokers=tuple(each))
        for (kind, user, client_id), each in brokers.items()
    ]


def _implied(row: dict[str, Any]) -> ImpliedDemand | None:
    if row["demand"] is None:
        return None
    return ImpliedDemand(rate=row["demand"], **{name: row[name] for name in _IMPLIED})


def _needs(rows: pa.Table) -> tuple[Floats, Floats, Mask, Mask]:
    """Return the needs of rows, those by what was tried alone, and which were held back or are partial."""
    replayed = np.minimum(rows[SUFFICES].to_numpy(), rows["max"].to_numpy())
    is_known = pc.is_valid(rows["demand"]).to_numpy()
    implied, held_share = (pc.fill_null(rows[name], 0.0).to_numpy() for name in ("demand", "held_share"))
    is_held = is_known & (held_share > HELD_SHARE)
    is_partial = pc.or_(pc.is_valid(rows["declined_from"]), pc.is_valid(rows["incident_ms"])).to_numpy()
    grown = np.maximum(replayed * pc.fill_null(rows["growth"], 1.0).to_numpy(), implied)
    needed = np.where(is_held | is_partial, implied, np.where(is_known, grown, replayed))
    return needed, replayed, is_held, is_partial


def _unknown(rows: pa.Table, is_held: Mask, lengths: Int64s) -> Mask:
    """Return whether each client's demand is unknown at the broker where most is implied."""
    implied = pc.fill_null(rows["demand"], 0.0).to_numpy()
    largest = np.lexsort((implied, is_held, np.repeat(np.arange(lengths.size), lengths)))[np.cumsum(lengths) - 1]
    is_unknown = pc.fill_null(rows["is_unknown"], False).to_numpy().astype(bool)  # noqa: FBT003 - by position only
    found: Mask = (is_held & is_unknown)[largest]
    return found


def _is_of(rows: pa.Table, kind: QuotaType) -> Mask:
    found: Mask = pc.equal(rows["quota_type"], kind.value).to_numpy()
    return found


def _starts(rows: pa.Table) -> Int64s:
    """Return the first row of each client of one quota type."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    differs = np.zeros(rows.num_rows - 1, bool)
    for name in ("user", "client_id"):
        column = rows[name].combine_chunks()
        differs |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.flatnonzero(np.append(True, differs))
