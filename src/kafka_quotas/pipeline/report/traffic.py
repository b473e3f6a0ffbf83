"""Usage over all brokers, of the clients that a page names, and counts and sums of all others.

Contract: functions named by `of_each` and `regrouped` get buckets of a part's clients, and run where its rows are. What
they return does not grow with the clients.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import (
    ASKS,
    GROUP,
    common_with_client_id,
    common_with_forms,
    common_with_user,
    sums_by_form,
)
from kafka_quotas.pipeline.buckets.entities import bucket_schema, columns_table
from kafka_quotas.pipeline.recommend.demand_table import KEYS, in_order
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.usage.job import UsageTables

Name = tuple[str | None, str | None]
NEARLY_FULL = 0.9
"""A client that uses this share of its limit is near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The usage of one quota type by one client (or group under one limit), over all brokers.

    `p99`, `limit` and `used` are those of the broker where it is nearest to its limit, or busiest without a limit.
    Rates are in the unit of the quota key.
    """

    quota_type: QuotaType
    user: str | None
    client_id: str | None
    average: float
    """Average rate over the recording, summed over all brokers."""
    p99: float
    limit: float | None
    """Quota, None for none."""
    throttle_ms: int
    throttled_share: float
    """Largest share of active seconds with a throttle time at any broker, 0 to 1."""

    @property
    def used(self) -> float | None:
        """The 99th percentile of the rate by the limit, None without a limit."""
        if self.limit is None:
            return None
        return self.p99 / self.limit if self.limit else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraffic:
    """The traffic of all clients."""

    clients: int
    """Clients that used anything."""
    amounts: Mapping[QuotaType, float]
    """What all of them used of each quota type, in the unit of its key times seconds."""
    largest: Mapping[QuotaType, tuple[Traffic, ...]]
    """The clients of each quota type with the highest averages, the highest first."""
    busiest: tuple[Name, ...]
    """The clients that wrote and read the most bytes, the largest first."""
    throttled: int
    """Clients with a throttle time."""
    longest_share: float
    """Largest `throttled_share` of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedTraffic:
    """The traffic under limits, and throttled traffic that no limit explains."""

    count: int
    limited: int
    """How many of these have a limit."""
    near: int
    """How many use `NEARLY_FULL` of theirs or more."""
    nearest: tuple[Traffic, ...]
    """Those nearest to their limits, the nearest first, and behind them those without one."""
    nearest_of: Mapping[QuotaType, tuple[Traffic, ...]]
    """Those of each quota type with a limit, likewise."""


LARGEST_SHOWN: Final = 10
"""Clients of each quota type that a page shows."""
NEAREST_SHOWN: Final = 25
"""Clients near their limits that it shows, of all quota types together."""
BUSIEST_SHOWN: Final = 12
"""Clients that it shows by time."""
_BYTES: Final = (QuotaType.PRODUCE, QuotaType.FETCH)
_AMOUNTS: Final = {
    QuotaType.REQUEST: ("thread_ms", 0.1),
    QuotaType.REQUEST_RATE: ("requests", 1.0),
    QuotaType.CONTROLLER_MUTATION: ("mutations", 1.0),
}
"""The column with what was used, and its factor to the unit of the quota key times seconds; others use bytes."""
_COLUMNS: Final = pa.schema(
    [
        *(pa.field(name, bucket_schema().field(name).type) for name in KEYS),
        ("p99", pa.float64()),
        ("throttle_ms", pa.int64()),
        ("throttled_share", pa.float64()),
        ("limit", pa.float64()),
        ("amount", pa.float64()),
    ]
)
_LIMITED: Final = "limited"


def client_traffic(tables: UsageTables, *, cluster: str, seconds: int) -> ClientTraffic:
    """Return the traffic of a cluster's clients in a recording of some seconds."""
    found = tables.by_client(partial(bucket_rows, cluster=cluster)).of_each(client_figures)
    largest = _together([each.largest for each in found])
    busiest = sorted((name for each in found for name in each.busiest), key=lambda each: (-each[0], *each[1:]))
    return ClientTraffic(
        clients=sum(each.clients for each in found),
        amounts={kind: sum(each.amounts.get(kind, 0.0) for each in found) for kind in QuotaType},
        largest={kind: _traffic(_largest(largest, kind), seconds) for kind in QuotaType},
        busiest=tuple((user or None, client_id or None) for _, user, client_id in busiest[:BUSIEST_SHOWN]),
        throttled=sum(each.throttled for each in found),
        longest_share=max((each.longest_share for each in found), default=0.0),
    )


def limited_traffic(tables: UsageTables, *, cluster: str, seconds: int) -> LimitedTraffic:
    """Return the traffic of a cluster under limits, and the throttled traffic that no limit explains.

    A limit explains it that any request of its client may fall under, whatever its quota type.
    """
    parts = tables.by_client(partial(bucket_rows, cluster=cluster))
    found = parts.of_each(limit_figures)
    unexplained: list[tuple[int, pa.Table]] = []
    if any(each.unlimited for each in found):
        questions = parts.regrouped(partial(_questions, forms=pa.concat_tables([each.forms for each in found])), "user")
        unexplained = questions.regrouped(_left_by_user, "client_id").of_each(_left_by_client_id)
    nearest = _together([*(each.nearest for each in found), *(rows for _, rows in unexplained)])
    of_kinds = _together([each.nearest_of for each in found])
    return LimitedTraffic(
        count=sum(each.limited for each in found) + sum(count for count, _ in unexplained),
        limited=sum(each.limited for each in found),
        near=sum(each.near for each in found),
        nearest=_traffic(_nearest(nearest, NEAREST_SHOWN), seconds),
        nearest_of={kind: _traffic(_nearest(_of(of_kinds, kind), LARGEST_SHOWN), seconds) for kind in QuotaType},
    )


def bucket_rows(buckets: pa.Table, *, cluster: str) -> pa.Table:
    """Return what counts of a cluster's buckets."""
    own = buckets.filter(pc.equal(buckets["cluster"], cluster))
    amounts = own["bytes"].to_numpy().astype(np.float64)
    for kind, (column, factor) in _AMOUNTS.items():
        amounts = np.where(pc.equal(own["quota_type"], kind.value).to_numpy(), own[column].to_numpy() * factor, amounts)
    return columns_table([*(own[name] for name in _COLUMNS.names[:-2]), own["quota"], amounts], _COLUMNS)


def traffic_rows(rows: pa.Table) -> pa.Table:
    """Return a row of each quota type and client over all brokers, given rows of `bucket_rows`.

    `p99` and `limit` are those of the broker where it is nearest to its limit, and `broker_id` is the lowest.
    """
    rows = in_order(rows)
    if not rows.num_rows:
        return rows
    differs = np.zeros(rows.num_rows - 1, bool)
    for name in ("quota_type", "user", "client_id"):
        column = rows[name].combine_chunks()
        differs |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    is_first = np.append(True, differs)
    starts = np.flatnonzero(is_first)
    used = np.nan_to_num(_used(rows), nan=0.0, posinf=np.inf)
    nearest = rows.take(pa.array(np.lexsort((-rows["p99"].to_numpy(), -used, np.cumsum(is_first)))[starts]))
    summed = {
        "broker_id": np.minimum,
        "throttle_ms": np.add,
        "throttled_share": np.maximum,
        "amount": np.add,
    }
    for name, function in summed.items():
        values = pa.array(function.reduceat(rows[name].to_numpy(), starts))
        nearest = nearest.set_column(nearest.schema.get_field_index(name), name, values)
    return nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFigures:
    """The traffic of a part's clients, as `ClientTraffic` has it of all of them."""

    clients: int
    amounts: dict[QuotaType, float]
    largest: pa.Table
    busiest: list[tuple[float, str, str]]
    """Bytes, users and client-ids."""
    throttled: int
    longest_share: float


def client_figures(rows: pa.Table) -> ClientFigures:
    """Return what a part's clients used."""
    rows = traffic_rows(rows)
    of_kinds = {kind: _of(rows, kind) for kind in QuotaType}
    throttled = rows.filter(pc.greater(rows["throttle_ms"], 0))
    written = pa.concat_tables([of_kinds[kind] for kind in _BYTES]).group_by(["user", "client_id"])
    order = [("amount_sum", "descending"), ("user", "ascending"), ("client_id", "ascending")]
    busiest = written.aggregate([("amount", "sum")]).sort_by(order).slice(0, BUSIEST_SHOWN)
    return ClientFigures(
        clients=_names(rows),
        amounts={kind: float(pc.sum(own["amount"]).as_py() or 0.0) for kind, own in of_kinds.items()},
        largest=pa.concat_tables([_largest(rows, kind) for kind in QuotaType]),
        busiest=[(row["amount_sum"], row["user"], row["client_id"]) for row in busiest.to_pylist()],
        throttled=_names(throttled),
        longest_share=float(pc.max(throttled["throttled_share"]).as_py() or 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFigures:
    """The traffic under limits of a part's clients, as `LimitedTraffic` has it of all of them."""

    limited: int
    near: int
    nearest: pa.Table
    nearest_of: pa.Table
    """Those of all quota types."""
    unlimited: int
    """Throttled traffic without a limit, whose names may be under limits of other traffic."""
    forms: pa.Table
    """Names under limits by their forms (`sums_by_form`)."""


def limit_figures(rows: pa.Table) -> LimitFigures:
    """Return the traffic under limits of a part's clients."""
    rows = traffic_rows(rows)
    limited = rows.filter(pc.is_valid(rows["limit"]))
    return LimitFigures(
        limited=limited.num_rows,
        near=int(np.count_nonzero(_used(limited) >= NEARLY_FULL)),
        nearest=_nearest(limited, NEAREST_SHOWN),
        nearest_of=pa.concat_tables([_nearest(_of(limited, kind), LARGEST_SHOWN) for kind in QuotaType]),
        unlimited=_asking(rows).num_rows,
        forms=sums_by_form(_with_groups(limited), [_LIMITED]),
    )


def _questions(rows: pa.Table, *, forms: pa.Table) -> pa.Table:
    """Return traffic under limits, and the throttled one that those with an empty name don't explain."""
    rows = traffic_rows(rows)
    asking = _with_groups(_asking(rows))
    explained = common_with_forms(asking, forms, [_LIMITED])[0]
    limited = _with_groups(rows.filter(pc.is_valid(rows["limit"])))
    return pa.concat_tables([limited, asking.filter(pa.array(explained == 0))])


def _left_by_user(rows: pa.Table) -> pa.Table:
    explained = common_with_user(rows, [_LIMITED])[0]
    is_limited = rows[_LIMITED].to_numpy() > 0
    is_named = pc.not_equal(rows["client_id"], "").to_numpy()  # no other is of use to rows of a client-id
    return rows.filter(pa.array(np.where(is_limited, is_named, explained == 0)))


def _left_by_client_id(rows: pa.Table) -> tuple[int, pa.Table]:
    explained = common_with_client_id(rows, [_LIMITED])[0]
    left = rows.filter(pa.array((rows[_LIMITED].to_numpy() == 0) & (explained == 0)))
    return left.num_rows, _nearest(left.drop_columns([GROUP, ASKS, _LIMITED]), NEAREST_SHOWN)


def _asking(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.and_(pc.is_null(rows["limit"]), pc.greater(rows["throttle_ms"], 0)))


def _with_groups(rows: pa.Table) -> pa.Table:
    """Return rows for `common_requests`: all of them are of one group, and those with a limit count."""
    none = pa.array(np.zeros(rows.num_rows, np.int64))
    limited = pc.is_valid(rows["limit"]).cast(pa.int64())
    return rows.append_column(GROUP, none).append_column(ASKS, none).append_column(_LIMITED, limited)


def _together(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([_COLUMNS.empty_table(), *parts])


def _of(rows: pa.Table, kind: QuotaType) -> pa.Table:
    return rows.filter(pc.equal(rows["quota_type"], kind.value))


def _names(rows: pa.Table) -> int:
    return int(rows.group_by(["user", "client_id"]).aggregate([]).num_rows)


def _used(rows: pa.Table) -> NDArray[np.float64]:
    """Return the share of its limit that each row uses, NaN without one."""
    limits, p99 = pc.fill_null(rows["limit"], np.nan).to_numpy(), rows["p99"].to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(limits == 0, np.inf, p99 / limits)


def _largest(rows: pa.Table, kind: QuotaType) -> pa.Table:
    """Return the rows of a quota type with the largest amounts above 0."""
    own = _of(rows, kind)
    own = own.filter(pc.greater(own["amount"], 0.0))
    return _first(own, LARGEST_SHOWN, [-own["amount"].to_numpy()])


def _nearest(rows: pa.Table, count: int) -> pa.Table:
    """Return the first rows, those nearest to their limits first and those without one last."""
    used = np.nan_to_num(_used(rows), nan=-1.0, posinf=np.inf)
    kinds = pc.index_in(rows["quota_type"], pa.array([each.value for each in QuotaType]))
    return _first(rows, count, [-used, kinds, -rows["amount"].to_numpy()])


def _first(rows: pa.Table, count: int, keys: Sequence[Any]) -> pa.Table:
    """Return the first rows by some keys, ascending, and then by the lowest broker and the names."""
    keys = [*keys, *(rows[name] for name in ("broker_id", "user", "client_id"))]
    names = [f"key {place}" for place in range(len(keys))]
    order = pc.sort_indices(pa.table(keys, names), sort_keys=[(name, "ascending") for name in names])
    return rows.take(order.slice(0, count))  # a slice of the rows would take all of them along


def _traffic(rows: pa.Table, seconds: int) -> tuple[Traffic, ...]:
    return tuple(
        Traffic(
            quota_type=QuotaType(row["quota_type"]),
            user=row["user"] or None,
            client_id=row["client_id"] or None,
            average=row["amount"] / seconds,
            p99=row["p99"],
            limit=row["limit"],
            throttle_ms=row["throttle_ms"],
            throttled_share=row["throttled_share"],
        )
        for row in rows.to_pylist()
    )
