"""The content of a report on traffic: usage by time, limits, what-if curves and the recommendation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.runner import Events
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, RecommendPlan
from kafka_quotas.pipeline.jobs.recommend.job import Recommendation, recommend
from kafka_quotas.pipeline.jobs.report.traffic import (
    ClientTraffic,
    LimitedTraffic,
    Name,
    client_traffic,
    limited_traffic,
)
from kafka_quotas.pipeline.jobs.usage.job import UsageTables, usage
from kafka_quotas.pipeline.jobs.usage.task import WINDOWS_S, UsagePlan

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCurve:
    """The effect of limits on one client."""

    user: str | None
    client_id: str | None
    points: Points
    """Limit, and share of its active time for which that throttles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The effect of default limits on the clients of one quota type."""

    quota_type: QuotaType
    default: float
    """The recommended default."""
    time_share: float
    """Tolerated share of active time, 0 to 1."""
    throttled_clients: Points
    """Limit, and share of the clients throttled for longer than tolerated."""
    neediest: tuple[ClientCurve, ...]
    """Curves of the neediest clients."""


def what_if(advice: Advice) -> WhatIf:
    """Compute the curves through all limits that were tried."""
    limits = [limit for limit, _ in advice.curve]
    return WhatIf(
        quota_type=advice.quota_type,
        default=advice.default,
        time_share=advice.tolerance.time_share,
        throttled_clients=tuple((limit, clients / advice.clients) for limit, clients in advice.curve),
        neediest=tuple(
            ClientCurve(
                user=each.user,
                client_id=each.client_id,
                points=tuple((limit, each.throttled_share(limit)) for limit in limits),
            )
            for each in advice.neediest
        ),
    )


_WANTED: Final = pa.schema(
    [("cluster", pa.string()), ("user", pa.string()), ("client_id", pa.string()), ("window_s", pa.int32())]
)
_MOST_SLOTS: Final = 48
_LENGTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900)
_DAY_FROM_S: Final = 12 * 3600
_HOUR_S: Final = 3600
_HOURS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The columns of a heat map."""

    names: tuple[str, ...]
    seconds: tuple[float, ...]
    """Recorded seconds of each column."""
    length_s: int
    """Length of a column."""
    cell_s: int
    """Length of the cells to count: 1, 60 or 3600."""
    first: int | None
    """First column in multiples of `length_s` since 1970, None for hours of the day."""

    def of(self, starts_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the column of each cell by its start."""
        numbers = starts_ms // (self.length_s * 1000)
        return numbers % _HOURS if self.first is None else numbers - self.first


def slots_of(first_ms: int, last_ms: int) -> Slots:
    """Choose the columns for a recording from the first to the last time.

    Recordings of more than half a day get the hours of the day (UTC).
    """
    first_s, end_s = first_ms // 1000, last_ms // 1000 + 1
    if end_s - first_s > _DAY_FROM_S:
        return Slots(
            names=tuple(f"{hour:02}" for hour in range(_HOURS)),
            seconds=_recorded_by_hour(first_s, end_s),
            length_s=_HOUR_S,
            cell_s=_HOUR_S,
            first=None,
        )
    length_s = next((each for each in _LENGTHS_S if (end_s - first_s) / each <= _MOST_SLOTS), _LENGTHS_S[-1])
    first, last = first_s // length_s, (end_s - 1) // length_s
    pattern = "%H:%M" if length_s % 60 == 0 else "%H:%M:%S"
    numbers = range(first, last + 1)
    return Slots(
        names=tuple(datetime.fromtimestamp(number * length_s, UTC).strftime(pattern) for number in numbers),
        seconds=tuple(
            float(min((number + 1) * length_s, end_s) - max(number * length_s, first_s)) for number in numbers
        ),
        length_s=length_s,
        cell_s=60 if length_s % 60 == 0 else 1,
        first=first,
    )


def _recorded_by_hour(first_s: int, end_s: int) -> tuple[float, ...]:
    seconds = [0.0] * _HOURS
    for hour in range(first_s // _HOUR_S, (end_s - 1) // _HOUR_S + 1):
        seconds[hour % _HOURS] += min((hour + 1) * _HOUR_S, end_s) - max(hour * _HOUR_S, first_s)
    return tuple(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Average bytes/s written and read, by client and time."""

    clients: tuple[Name, ...]
    slots: Slots
    rates: tuple[tuple[float, ...], ...]
    """Rates in bytes/s, a line of columns per client."""


def heat_map(used: UsageTables, slots: Slots, clients: Sequence[Name], *, cluster: str) -> HeatMap:
    """Compute the heat map of these clients of a cluster, summed over their brokers."""
    rows = {(user or "", client_id or ""): place for place, (user, client_id) in enumerate(clients)}
    common = {"cluster": cluster, "window_s": slots.cell_s}
    wanted = used.tables.add(
        "wanted",
        pa.Table.from_pylist([{"user": user, "client_id": client_id, **common} for user, client_id in rows], _WANTED),
    )
    usage = used.tables.query(
        f"""SELECT user, client_id, window_start_ms, sum(bytes) AS bytes
        FROM {used.windows} JOIN {wanted} USING (cluster, user, client_id, window_s)
        WHERE quota_type IN ('produce', 'fetch') GROUP BY user, client_id, window_start_ms"""
    )
    sums = np.zeros((len(clients), len(slots.names)))
    own = zip(usage["user"].to_pylist(), usage["client_id"].to_pylist(), strict=True)
    places = np.array([rows[name] for name in own], dtype=np.int64)
    np.add.at(sums, (places, slots.of(usage["window_start_ms"].to_numpy())), usage["bytes"].to_numpy())
    rates = sums / np.maximum(np.array(slots.seconds), 1.0)
    return HeatMap(clients=tuple(clients), slots=slots, rates=tuple(tuple(row) for row in rates.tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReport:
    """The content of a report."""

    quotas: str
    """Name of the quotas in force."""
    clients: ClientTraffic
    """Traffic of the clients, in the scope of the recommendation."""
    limited: LimitedTraffic
    """Traffic of the buckets of the quotas in force that have a limit or were throttled."""
    heat: HeatMap
    """Traffic of the largest clients over time."""
    what_ifs: tuple[WhatIf, ...]
    recommendation: Recommendation


def report(events: Events, plan: RecommendPlan, quotas: Proposal, *, step: Callable[[str], None]) -> TrafficReport:
    """Compute the content of a report, with the errors of `recommend`.

    `quotas` are those in force. `step` is called with the name of each step as it begins.

    Raises:
        UsageError: There are no events.
    """
    recorded = events.recorded
    if recorded.first_ms is None or recorded.last_ms is None:
        raise UsageError("there are no events", hint="kafka-quotas pipeline ingest reads them")
    slots = slots_of(recorded.first_ms, recorded.last_ms)
    advised = recommend(
        events, replace(plan, in_force=quotas, windows_s=tuple(sorted({slots.cell_s, *WINDOWS_S}))), step=step
    )
    step("usage by quota")
    in_force = usage(events, UsagePlan(quotas=quotas, seconds=recorded.seconds, window=plan.window))
    own, cluster = advised.observed, advised.cluster
    with events.errors("summing up usage by client"):
        clients = client_traffic(own, cluster=cluster, seconds=recorded.seconds)
        return TrafficReport(
            quotas=quotas.name,
            clients=clients,
            limited=limited_traffic(in_force, cluster=cluster, seconds=recorded.seconds),
            heat=heat_map(own, slots, clients.busiest, cluster=cluster),
            what_ifs=tuple(map(what_if, advised.advices)),
            recommendation=advised,
        )
