"""The clients of a recommendation in rows, and all that is asked of them by SQL.

Rows are per quota type, client and broker, with an empty user or client-id where clients of all count as one. Only
counts, bounds and the clients that are named come to this process.

A client needs at a broker the lowest limit that throttles it for no longer than tolerated, and above which no tried
limit does: its peak where every one does, or none was tried, for at its peak rate a client is not throttled. Growth is
in it, and the busiest hour of the week. Where the client was held back while it was recorded it is what its throttle
times imply: what was replayed is what it was let through, and no limit would have held that back much. Where an
incident, or the time before a decline, is left out, the busiest hour of the rest counts alone, for all was replayed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.engine.sql import SqlTables
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, LimitChange, LimitChanges, RecommendPlan
from kafka_quotas.pipeline.jobs.recommend.demand import HELD_SHARE, ClientName, Demand, Trial, demands_of
from kafka_quotas.pipeline.jobs.usage.job import UsageTables
from kafka_quotas.pipeline.tables.results import DEMAND

Limits = Mapping[QuotaType, Sequence[float]]
"""Tried limits of each quota type, ascending."""

RECOMMENDED: Final = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
"""Quota types that brokers enforce, in display order."""
CHOICES: Final = (0, 1, 2, 5, 10, 20, 50)
"""Numbers of overrides of which the default is shown."""
NEEDIEST_SHOWN: Final = 4
"""Clients of each quota type that a report shows with all that was tried."""
NAMED: Final = 20
"""Clients of each quota type that are named for one reason."""
_CLIENT: Final = "quota_type, user, client_id"
_KEY: Final = f"{_CLIENT}, broker_id"
_SCOPED_NAME: Final = {
    DefaultScope.USER: "user",
    DefaultScope.CLIENT_ID: "client_id",
    DefaultScope.PAIR: "concat(user, '/', client_id)",
}
_HAS_NAME: Final = {
    DefaultScope.USER: "user <> ''",
    DefaultScope.CLIENT_ID: "client_id <> ''",
    DefaultScope.PAIR: "user <> '' AND client_id <> ''",
}
"""Clients that a default limits: Kafka has none for an empty name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindClients:
    """The clients of one quota type: how many there are, and those that are named."""

    clients: int
    held: int
    """Clients that were held back while they were recorded."""
    partial: int
    """Clients of which not all that was recorded counts."""
    at_broker: Mapping[int, int]
    """Clients that used each broker."""
    named: Sequence[Demand]
    """Those that need more than the default, the neediest, and those with a priority or to explain."""


class Clients:
    """The clients of one cluster, with what limits that were tried do to them."""

    def __init__(self, used: UsageTables, plan: RecommendPlan, *, cluster: str, seconds: int) -> None:
        self.tables: SqlTables = used.tables
        self._plan = plan
        self._cluster = self.tables.add("chosen", pa.table({"cluster": [cluster]}))
        implied = ", ".join(each.name for each in DEMAND)
        self._demands = self.tables.define(
            "demands",
            f"""SELECT {_KEY}, p50, p99, max AS peak, {implied},
                greatest(CAST(round(active_share * {seconds}) AS BIGINT), 1) AS active_s
            FROM {used.buckets} WHERE cluster IN (SELECT cluster FROM {self._cluster})""",
            keep=True,
        )
        self._sweeps: list[tuple[Limits, str]] = []
        self._needs = ""
        self.rows = ""
        """The name of the rows of clients, over all brokers, once a limit was tried."""

    def used(self) -> dict[QuotaType, tuple[float, float]]:
        """Return the smallest median rate and the largest peak of each recommended quota type that was used.

        Raises:
            UsageError: A client that was given a priority has no events.
        """
        scope, names = self._plan.scope, sorted(self._plan.priorities)
        wanted = self.tables.add("wanted", pa.table({"name": pa.array(names, pa.string())}))
        missing = self.tables.query(
            f"SELECT name FROM {wanted} ANTI JOIN (SELECT {_SCOPED_NAME[scope]} AS name FROM {self._demands}) AS known "
            "USING (name)"
        )["name"].to_pylist()
        if missing:
            raise UsageError(
                f"no events of {scope.value} {min(missing)}, who was given a priority",
                hint="kafka-quotas pipeline usage lists the clients",
            )
        found = self._by_kind(
            f"""SELECT quota_type, min(CASE WHEN p50 > 0 THEN p50 ELSE peak END) AS low, max(peak) AS high
            FROM {self._demands} WHERE peak > 0 GROUP BY quota_type"""
        )
        return {kind: (found[kind][0]["low"], found[kind][0]["high"]) for kind in RECOMMENDED if kind in found}

    def add_sweep(self, limits: Limits, tried: str) -> None:
        """Take up what a sweep over limits did, by the rows of throttled clients."""
        self._sweeps.append((limits, tried))
        share = self._plan.tolerance.time_share
        all_tried = " UNION ALL ".join(f"SELECT * FROM {each}" for _, each in self._sweeps)
        steps = self._steps()
        held = self.tables.define(
            "held",
            f"""SELECT {_KEY}, max(quota) AS held_at
            FROM ({all_tried}) AS tried JOIN {self._demands} USING ({_KEY})
            WHERE cluster IN (SELECT cluster FROM {self._cluster})
                AND CAST(throttle_ms AS DOUBLE) / 1000 / active_s > {share!r}
            GROUP BY {_KEY}""",
        )
        replayed = f"""SELECT {self._demands}.*, CASE WHEN {_HAS_NAME[self._plan.scope]}
                THEN least(coalesce(suffices, peak), peak) ELSE peak END AS replayed,
            demand IS NOT NULL AND coalesce(held_share, 0) > {HELD_SHARE} AS is_held,
            declined_from IS NOT NULL OR incident_ms IS NOT NULL AS is_partial
        FROM {self._demands} LEFT JOIN {held} USING ({_KEY})
            LEFT JOIN {steps} ON {self._demands}.quota_type = {steps}.kind AND coalesce(held_at, -1) = {steps}.below"""
        self._needs = self.tables.define(
            "needs",
            f"""SELECT *, CASE WHEN is_held OR is_partial THEN demand
                WHEN demand IS NOT NULL THEN greatest(replayed * growth, demand) ELSE replayed END AS needed
            FROM ({replayed}) AS replayed""",
            keep=True,
        )
        self.rows = self.tables.define(
            "clients",
            f"""SELECT {_CLIENT}, max(needed) AS needed, max(replayed) AS replayed, max(peak) AS peak,
                bool_or(is_held) AS is_held, bool_or(is_partial) AS is_partial,
                coalesce(max_by(is_unknown, demand) FILTER (WHERE is_held), false) AS is_unknown
            FROM {self._needs} WHERE quota_type IN ({self._kinds()})
            GROUP BY {_CLIENT} HAVING max(peak) > 0""",
            keep=True,
        )

    def _kinds(self) -> str:
        return ", ".join(f"'{each.value}'" for each in self._sweeps[0][0])

    def _steps(self) -> str:
        """Name the next higher limit of each tried one, and the lowest, which is above -1."""
        rows: dict[str, list[Any]] = {"kind": [], "below": [], "suffices": []}
        for kind, tried in self.limits().items():
            for below, above in zip([-1.0, *tried], [*tried, None], strict=True):
                for name, value in zip(rows, (kind.value, below, above), strict=True):
                    rows[name].append(value)
        kinds = (pa.string(), pa.float64(), pa.float64())
        return self.tables.add(
            "steps",
            pa.table({name: pa.array(each, kind) for (name, each), kind in zip(rows.items(), kinds, strict=True)}),
        )

    def limits(self) -> dict[QuotaType, list[float]]:
        """Return all tried limits of each quota type, ascending."""
        return {
            kind: sorted({limit for tried, _ in self._sweeps for limit in tried[kind]}) for kind in self._sweeps[0][0]
        }

    def tiers(self) -> "dict[QuotaType, Tiers]":
        """Part the many clients of each quota type from the few, `overrides` of them or those far above most.

        These need more than a fence above the upper quartile of the needs: twice its distance from the median, on a
        scale of ratios, and twice the quartile at least.
        """
        overrides = self._plan.tolerance.overrides
        numbers = sorted({*CHOICES, *([] if overrides is None else [overrides])})
        ranked = self.tables.define(
            "ranked",
            f"""SELECT quota_type, needed, row_number() OVER (PARTITION BY quota_type ORDER BY needed) AS place,
                count(*) OVER (PARTITION BY quota_type) AS clients FROM {self.rows}""",
            keep=True,
        )
        found = self._by_kind(
            f"""SELECT quota_type, clients - place AS above, needed, place = ceil(clients * 0.5) AS is_median,
                place = ceil(clients * 0.75) AS is_upper FROM {ranked}
            WHERE clients - place IN ({", ".join(map(str, numbers))}) OR place = 1
                OR place = ceil(clients * 0.5) OR place = ceil(clients * 0.75)"""
        )
        lowest = {}
        for kind, rows in found.items():
            needs = {row["above"]: row["needed"] for row in rows}
            if overrides is not None:
                lowest[kind] = needs.get(overrides, min(needs.values()))  # never nobody
                continue
            median = next(row["needed"] for row in rows if row["is_median"])
            upper = next(row["needed"] for row in rows if row["is_upper"])
            lowest[kind] = upper * max((upper / max(median, 1e-9)) ** 2, 2.0)
        if overrides is None:
            fences = " ".join(f"WHEN '{kind.value}' THEN {fence!r}" for kind, fence in lowest.items())
            within = self._by_kind(
                f"""SELECT quota_type, max(needed) AS lowest FROM {ranked}
                WHERE needed <= CASE quota_type {fences} END GROUP BY quota_type"""
            )
            lowest = {kind: within[kind][0]["lowest"] for kind in lowest}
        return {
            kind: Tiers(
                lowest=lowest[kind],
                needs={
                    row["above"]: row["needed"]
                    for row in sorted(rows, key=lambda row: row["above"])
                    if row["above"] in CHOICES
                },
            )
            for kind, rows in ((kind, found[kind]) for kind in self._sweeps[0][0])
        }

    def count(self) -> int:
        """Return the number of clients, whatever quota types they used."""
        found = self.tables.query(
            f"SELECT count(*) AS n FROM (SELECT DISTINCT user, client_id FROM {self.rows}) AS own"
        )
        return int(found["n"][0].as_py())

    def kinds(self, defaults: Mapping[QuotaType, float]) -> dict[QuotaType, KindClients]:
        """Return the clients of each quota type, and name those that need more than its default, or stand out."""
        counts = self._by_kind(
            f"""SELECT quota_type, count(*) AS clients, count(*) FILTER (WHERE is_held) AS held,
                count(*) FILTER (WHERE is_partial) AS partial_clients
            FROM {self.rows} GROUP BY quota_type"""
        )
        brokers = self._by_kind(
            f"""SELECT quota_type, broker_id, count(*) AS clients
            FROM {self._needs} JOIN (SELECT {_CLIENT} FROM {self.rows}) AS own USING ({_CLIENT})
            GROUP BY quota_type, broker_id"""
        )
        named = self._named(defaults)
        return {
            kind: KindClients(
                clients=counts[kind][0]["clients"],
                held=counts[kind][0]["held"],
                partial=counts[kind][0]["partial_clients"],
                at_broker={
                    row["broker_id"]: row["clients"] for row in sorted(brokers[kind], key=lambda row: row["broker_id"])
                },
                named=[each for each in named if each.quota_type is kind],
            )
            for kind in defaults
        }

    def _named(self, defaults: Mapping[QuotaType, float]) -> list[Demand]:
        asked = [*self._plan.priorities, *([] if self._plan.explained is None else [self._plan.explained])]
        names = self.tables.add("names", pa.table({"name": pa.array(asked, pa.string())}))
        limits = " ".join(f"WHEN '{kind.value}' THEN {default!r}" for kind, default in defaults.items())
        named = f"""SELECT {_CLIENT} FROM (SELECT *,
                row_number() OVER (PARTITION BY quota_type ORDER BY needed DESC, user DESC, client_id DESC) AS by_need,
                row_number() OVER (PARTITION BY quota_type, is_held ORDER BY CASE WHEN is_unknown THEN 0 ELSE 1 END,
                    needed DESC, user, client_id) AS by_held,
                row_number() OVER (PARTITION BY quota_type, is_partial ORDER BY peak DESC, user, client_id) AS by_peak
            FROM {self.rows}) AS placed
            WHERE needed > CASE quota_type {limits} END OR by_need <= {NEEDIEST_SHOWN}
                OR (is_held AND by_held <= {NAMED}) OR (is_partial AND by_peak <= {NAMED})
                OR {_SCOPED_NAME[self._plan.scope]} IN (SELECT name FROM {names})"""
        return self._demands_of(named)

    def _demands_of(self, names: str) -> list[Demand]:
        """Return the clients that a query names, one by one."""
        rows = self.tables.query(
            f"SELECT * FROM {self._needs} JOIN ({names}) AS named USING ({_CLIENT}) ORDER BY {_KEY}"
        )
        return demands_of(rows.to_pylist())

    def curves(self) -> dict[QuotaType, tuple[tuple[float, int], ...]]:
        """Return for each tried limit the clients that it would hold back for longer than tolerated."""
        limits = [(kind.value, limit) for kind, tried in self.limits().items() for limit in tried]
        kinds, values = zip(*limits, strict=True)
        steps = self.tables.add("tried", pa.table({"quota_type": list(kinds), "step_limit": list(values)}))
        found = self._by_kind(
            f"""SELECT quota_type, step_limit, count(*) FILTER (WHERE replayed > step_limit) AS clients
            FROM {steps} JOIN {self.rows} USING (quota_type) GROUP BY quota_type, step_limit"""
        )
        return {
            kind: tuple(sorted((row["step_limit"], row["clients"]) for row in rows)) for kind, rows in found.items()
        }

    def with_trials(self, advices: Sequence[Advice]) -> tuple[Advice, ...]:
        """Add all that was tried to the clients that are shown with it."""
        shown = [each for advice in advices for each in (*advice.neediest, advice.explained) if each is not None]
        if not shown:
            return tuple(advices)
        names = self.tables.add("shown", _names_table(shown))
        tried: dict[tuple[str, ClientName, int], dict[float, int]] = defaultdict(dict)
        for _, sweep in self._sweeps:
            rows = self.tables.query(
                f"""SELECT {_KEY}, quota, throttle_ms FROM {sweep} JOIN {names} USING ({_CLIENT})
                WHERE cluster IN (SELECT cluster FROM {self._cluster})"""
            )
            for row in rows.to_pylist():
                own = tried[row["quota_type"], (row["user"], row["client_id"]), row["broker_id"]]
                own[row["quota"]] = row["throttle_ms"]
        limits = self.limits()

        def with_trials(demand: Demand) -> Demand:
            own, brokers = limits[demand.quota_type] if self._is_limited(demand) else [], []
            for each in demand.brokers:
                found = tried[demand.quota_type.value, demand.name, each.broker_id]
                shares = ((limit, found.get(limit, 0) / 1000 / each.active_s) for limit in own)
                trials = tuple(Trial(limit=limit, throttled_share=min(share, 1.0)) for limit, share in shares)
                brokers.append(replace(each, trials=trials))
            return replace(demand, brokers=tuple(brokers))

        return tuple(
            replace(
                each,
                neediest=tuple(map(with_trials, each.neediest)),
                explained=None if each.explained is None else with_trials(each.explained),
            )
            for each in advices
        )

    def _is_limited(self, demand: Demand) -> bool:
        return all(name != "" for _, name in self._plan.scope.entity(demand.user, demand.client_id).parts)

    def outcomes(self, advices: Sequence[Advice], replayed: str) -> tuple[Advice, ...]:
        """Add what a replay of the advised quotas (proposal 0), and of the defaults alone (1), does."""
        own = self.tables.add("own", _names_table([each.demand for advice in advices for each in advice.overrides]))
        both = (0, 1)
        times = (f"max(CASE WHEN proposal = {n} THEN CAST(throttle_ms AS DOUBLE) / 1000 END) AS held_{n}" for n in both)
        parts = (f"max(least(coalesce(held_{n}, 0) / active_s, 1)) AS share_{n}" for n in both)
        shares = self.tables.define(
            "shares",
            f"""SELECT {_CLIENT}, {", ".join(parts)}
            FROM {self._needs} LEFT JOIN (SELECT {_KEY}, {", ".join(times)}
                FROM {replayed} WHERE cluster IN (SELECT cluster FROM {self._cluster}) GROUP BY {_KEY}) AS replayed
            USING ({_KEY}) GROUP BY {_CLIENT}""",
            keep=True,
        )
        tolerated = self._plan.tolerance.time_share
        under = self.tables.define(
            "under",
            f"""SELECT {self.rows}.*, share_0, NOT is_partial AND share_0 > {tolerated!r} AS is_exceeding
            FROM {self.rows} JOIN {shares} USING ({_CLIENT}) ANTI JOIN {own} USING ({_CLIENT})""",
            keep=True,
        )
        figures = self._by_kind(
            f"""SELECT quota_type, max(CASE WHEN NOT is_partial THEN share_0 END) AS largest_share,
                max(CASE WHEN NOT is_partial THEN peak END) AS peak, count(*) FILTER (WHERE is_exceeding) AS exceeding,
                count(*) FILTER (WHERE is_unknown AND NOT is_exceeding) AS unknown_clients
            FROM {under} GROUP BY quota_type"""
        )
        longest = f"""SELECT {_CLIENT}, share_0
            FROM (SELECT *, row_number() OVER (PARTITION BY quota_type
                ORDER BY share_0 DESC, needed DESC, user DESC, client_id DESC) AS place
                FROM {under} WHERE is_exceeding) AS placed
            WHERE place <= {NAMED}"""
        held = self._shares(longest)
        exceeding = self._demands_of(f"SELECT {_CLIENT} FROM ({longest}) AS longest") if held else []
        of_own = self._shares(f"SELECT {_CLIENT}, share_0, share_1 FROM {shares} JOIN {own} USING ({_CLIENT})")
        return tuple(
            _with_outcomes(
                each,
                (figures.get(each.quota_type) or [{}])[0],
                [
                    (demand, held[demand.quota_type.value, demand.name][0])
                    for demand in exceeding
                    if demand.quota_type is each.quota_type
                ],
                of_own,
            )
            for each in advices
        )

    def changes(self, replayed: str) -> dict[QuotaType, LimitChanges]:
        """Compare the advised quotas (proposal 0) with those in force (2), given all rows of a replay."""
        of_proposal = f"""SELECT {_CLIENT}, min(quota) AS quota_{{0}},
                max(least(CAST(throttle_ms AS DOUBLE) / 1000 / active_s, 1)) AS held_{{0}}
            FROM {replayed} JOIN {self._demands} USING ({_KEY})
            WHERE proposal = {{0}} AND cluster IN (SELECT cluster FROM {self._cluster}) GROUP BY {_CLIENT}"""
        changed = self.tables.define(
            "changed",
            f"""SELECT {_CLIENT}, quota_0, quota_2, held_0, coalesce(held_2, 0) AS held_2,
                CASE WHEN quota_2 IS NULL OR quota_0 < quota_2 THEN 'tightened'
                    WHEN quota_0 > quota_2 THEN 'loosened' ELSE 'unchanged' END AS direction
            FROM ({of_proposal.format(0)}) AS advised LEFT JOIN ({of_proposal.format(2)}) AS in_force USING ({_CLIENT})
            WHERE quota_0 IS NOT NULL""",
            keep=True,
        )
        counts = self._by_kind(
            f"SELECT quota_type, direction, count(*) AS clients FROM {changed} GROUP BY quota_type, direction"
        )
        rows = self._by_kind(
            f"""SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY quota_type
                    ORDER BY greatest(held_0 - held_2, 0) DESC, direction DESC, user, client_id) AS place
                FROM {changed} WHERE direction <> 'unchanged') AS placed WHERE place <= {NAMED} ORDER BY place"""
        )
        none = dict.fromkeys(("tightened", "loosened", "unchanged"), 0)
        return {
            kind: LimitChanges(
                **none | {row["direction"]: row["clients"] for row in own},
                first=tuple(
                    LimitChange(
                        name=(row["user"], row["client_id"]),
                        before=row["quota_2"],
                        after=row["quota_0"],
                        held_before=row["held_2"],
                        held_after=row["held_0"],
                    )
                    for row in rows[kind]
                ),
            )
            for kind, own in counts.items()
        }

    def _shares(self, sql: str) -> dict[tuple[str, ClientName], tuple[float, ...]]:
        return {
            (kind, (user, client_id)): tuple(shares)
            for kind, user, client_id, *shares in (row.values() for row in self.tables.query(sql).to_pylist())
        }

    def _by_kind(self, sql: str) -> dict[QuotaType, list[dict[str, Any]]]:
        found: dict[QuotaType, list[dict[str, Any]]] = defaultdict(list)
        for row in self.tables.query(sql).to_pylist():
            found[QuotaType(row["quota_type"])].append(row)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The need that parts the many clients of a quota type, who get the default, from the few."""

    lowest: float
    """The largest need of the many."""
    needs: Mapping[int, float]
    """The largest need but those of some numbers of clients."""


def _with_outcomes(
    advice: Advice,
    figures: Mapping[str, Any],
    under_default: Sequence[tuple[Demand, float]],
    own: Mapping[tuple[str, ClientName], tuple[float, ...]],
) -> Advice:
    overrides = []
    for each in advice.overrides:
        share, at_default = own.get((each.demand.quota_type.value, each.demand.name), (0.0, 0.0))
        overrides.append(replace(each, throttled_share=share, throttled_share_at_default=at_default))
    exceeding = [
        (each.demand, each.throttled_share)
        for each in overrides
        if each.demand.left_out is None and each.throttled_share > advice.tolerance.time_share
    ]
    count = figures.get("exceeding", 0)
    longest = sorted([*exceeding, *under_default], key=lambda each: (-each[1], -each[0].needed, each[0].name))
    return replace(
        advice,
        overrides=tuple(overrides),
        largest_tolerated_share=figures.get("largest_share") or 0.0,
        peak=figures.get("peak"),
        exceeding=tuple(longest[:NAMED]),
        exceeding_clients=len(exceeding) + count,
        exceeding_default=count,
        unknown_default=figures.get("unknown_clients", 0),
    )


def _names_table(demands: Iterable[Demand]) -> pa.Table:
    """Return the names of clients, each once for a quota type."""
    names = sorted({(each.quota_type.value, *each.name) for each in demands})
    schema = pa.schema([(name, pa.string()) for name in _CLIENT.split(", ")])
    return pa.Table.from_pylist([dict(zip(schema.names, each, strict=True)) for each in names], schema)
