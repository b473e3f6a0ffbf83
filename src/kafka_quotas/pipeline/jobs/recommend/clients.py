"""The clients of a recommendation in rows, and all that is asked of them by SQL.

Rows are per quota type, client and broker, with an empty user or client-id where clients of all count as one. Only
counts, bounds and the clients that are named come to this process.

A client needs at a broker the lowest limit that throttles it for no longer than tolerated, and above which no tried
limit does: its peak where every one does, or none was tried, for at its peak rate a client is not throttled. Growth is
in it, and the busiest hour of the week. Where the client was held back while it was recorded it is what its throttle
times imply: what was replayed is what it was let through, and no limit would have held that back much. Where an
incident, or the time before a decline, is left out, the busiest hour of the rest counts alone, for all was replayed.

The default fits the many: it is the largest need within a fence above the clients' upper quartile, by their spread, or
the largest need but those of a wished number of overrides. The few above it get an override: their need. Both have
headroom, and are rounded up to two digits.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.jobs.recommend.advice import (
    HELD_SHARE,
    NAMED,
    NEEDIEST_SHOWN,
    Advice,
    BrokerDemand,
    BrokerLoad,
    Choice,
    Demand,
    ImpliedDemand,
    LimitChange,
    LimitChanges,
    Override,
    Trial,
)
from kafka_quotas.pipeline.jobs.recommend.capacity import Replication
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan, neat_limit
from kafka_quotas.pipeline.jobs.usage.job import UsageTables
from kafka_quotas.pipeline.tables.results import DEMAND

Limits = Mapping[QuotaType, Sequence[float]]
"""Tried limits of each quota type, ascending."""
Trials = Mapping[tuple[Any, ...], tuple[Trial, ...]]
"""What limits did, by quota type, user, client-id and broker."""
Row = Mapping[str, Any]

RECOMMENDED: Final = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
"""Quota types that brokers enforce, in display order."""
CHOICES: Final = (0, 1, 2, 5, 10, 20, 50)
"""Numbers of overrides of which the default is shown."""
_CLIENT: Final = "quota_type, user, client_id"
_KEY: Final = f"{_CLIENT}, broker_id"
_SHARE: Final = "least(CAST(coalesce({}, 0) AS DOUBLE) / 1000 / active_s, 1)"
"""Share of a client's active time from a sum of throttle times."""


class Clients:
    """The clients of one cluster, with what limits that were tried do to them."""

    def __init__(self, used: UsageTables, plan: RecommendPlan, chosen: str, *, seconds: int) -> None:
        self.tables, self.observed, self.chosen = used.tables, used, chosen
        self._plan = plan
        # Kafka has no default for an empty name.
        self._has_name = " AND ".join(f"{column} <> ''" for column in plan.scope.columns)
        self._name = f"concat_ws('/', {', '.join(plan.scope.columns)})"
        implied = ", ".join(each.name for each in DEMAND)
        self._demands = self.tables.define(
            "demands",
            f"""SELECT {_KEY}, p50, p99, max AS peak, {implied},
                greatest(CAST(round(active_share * {seconds}) AS BIGINT), 1) AS active_s
            FROM {used.buckets} JOIN {chosen} USING (cluster)""",
            keep=True,
        )
        self._sweeps: list[str] = []
        self._limits: dict[QuotaType, list[float]] = {}
        self._tried = self._steps = self._needs = self._ranked = ""
        self.rows = ""
        """The name of the rows of clients, over all brokers, once a limit was tried."""

    def used(self) -> dict[QuotaType, tuple[float, float]]:
        """Return the smallest median rate and the largest peak of each recommended quota type that was used."""
        wanted = self.tables.add(
            "wanted", pa.table({"name": pa.array(sorted(dict(self._plan.priorities)), pa.string())})
        )
        missing = self.tables.query(
            f"SELECT name FROM {wanted} ANTI JOIN (SELECT {self._name} AS name FROM {self._demands}) AS known "
            "USING (name) ORDER BY name"
        )["name"].to_pylist()
        if missing:
            raise UsageError(
                f"no events of {self._plan.scope.value} {missing[0]}, who was given a priority",
                hint="kafka-quotas pipeline usage lists the clients",
            )
        found = self._by_kind(
            f"""SELECT quota_type, min(CASE WHEN p50 > 0 THEN p50 ELSE peak END) AS low, max(peak) AS high
            FROM {self._demands} WHERE peak > 0 GROUP BY quota_type"""
        )
        return {kind: (found[kind][0]["low"], found[kind][0]["high"]) for kind in RECOMMENDED if kind in found}

    def add_sweep(self, limits: Limits, tried: str) -> None:
        """Take up what a sweep over limits did, by the rows of throttled clients.

        A step is a tried limit, or -1 below all of them, with the next higher one that suffices if it does not.
        """
        self._sweeps.append(tried)
        self._limits = {kind: sorted({*self._limits.get(kind, ()), *own}) for kind, own in limits.items()}
        all_tried = " UNION ALL ".join(f"SELECT * FROM {each}" for each in self._sweeps)
        self._tried = self.tables.define(
            "tried",
            f"SELECT {_KEY}, quota, throttle_ms FROM ({all_tried}) AS tried JOIN {self.chosen} USING (cluster)",
        )
        held = self.tables.define(
            "held",
            f"""SELECT {_KEY}, max(quota) AS held_at FROM {self._tried} JOIN {self._demands} USING ({_KEY})
            WHERE CAST(throttle_ms AS DOUBLE) / 1000 / active_s > {self._plan.time_share!r}
            GROUP BY {_KEY}""",
        )
        steps = [
            (kind.value, below, above)
            for kind, tried_of in self._limits.items()
            for below, above in zip([-1.0, *tried_of], [*tried_of, None], strict=True)
        ]
        schema = pa.schema([("kind", pa.string()), ("below", pa.float64()), ("suffices", pa.float64())])
        self._steps = self.tables.add("steps", pa.table(list(zip(*steps, strict=True)), schema=schema))
        replayed = f"""SELECT {self._demands}.*, CASE WHEN {self._has_name}
                THEN least(coalesce(suffices, peak), peak) ELSE peak END AS replayed,
            coalesce(held_share, 0) > {HELD_SHARE} AS is_held,
            declined_from IS NOT NULL OR incident_ms IS NOT NULL AS is_partial
        FROM {self._demands} LEFT JOIN {held} USING ({_KEY})
            LEFT JOIN {self._steps} ON quota_type = kind AND coalesce(held_at, -1) = below"""
        self._needs = self.tables.define(
            "needs",
            f"""SELECT *, CASE WHEN is_held OR is_partial THEN demand ELSE greatest(replayed * growth, demand) END
                AS needed
            FROM ({replayed}) AS replayed""",
            keep=True,
        )
        kinds = ", ".join(f"'{each.value}'" for each in self._limits)
        self.rows = self.tables.define(
            "clients",
            f"""SELECT {_CLIENT}, max(needed) AS needed, max(replayed) AS replayed, max(peak) AS peak,
                bool_or(is_held) AS is_held, bool_or(is_partial) AS is_partial,
                coalesce(max_by(is_unknown, demand) FILTER (WHERE is_held), false) AS is_unknown
            FROM {self._needs} WHERE quota_type IN ({kinds}) GROUP BY {_CLIENT} HAVING max(peak) > 0""",
            keep=True,
        )
        self._ranked = self.tables.define(
            "ranked",
            f"""SELECT quota_type, needed, is_held, is_partial,
                row_number() OVER (PARTITION BY quota_type ORDER BY needed) AS place,
                count(*) OVER (PARTITION BY quota_type) AS clients FROM {self.rows}""",
            keep=True,
        )

    def tiers(self) -> dict[QuotaType, Row]:
        """Return the `lowest` limit of each quota type for the many clients, and how many clients there are.

        The few above it are `overrides` of them, or those far above most: more than a fence above the upper quartile
        of the needs, which is twice its distance from the median, on a scale of ratios, and twice the quartile at
        least.
        """
        overrides, ranked = self._plan.overrides, self._ranked
        fence = (
            "upper * greatest(pow(upper / greatest(median, 1e-9), 2), 2.0)"
            if overrides is None
            else "coalesce(chosen, smallest)"  # never nobody
        )
        found = self._by_kind(
            f"""SELECT quota_type, max(CASE WHEN needed <= {fence} THEN needed END) AS lowest, count(*) AS clients,
                count(*) FILTER (WHERE is_held) AS held, count(*) FILTER (WHERE is_partial) AS partial
            FROM {ranked} JOIN (SELECT quota_type, min(needed) AS smallest,
                    max(CASE WHEN place = ceil(clients * 0.5) THEN needed END) AS median,
                    max(CASE WHEN place = ceil(clients * 0.75) THEN needed END) AS upper,
                    max(CASE WHEN clients - place = {-1 if overrides is None else overrides} THEN needed END) AS chosen
                FROM {ranked} GROUP BY quota_type) AS bounds USING (quota_type)
            GROUP BY quota_type"""
        )
        return {kind: found[kind][0] for kind in self._limits}

    def count(self) -> int:
        """Return the number of clients, whatever quota types they used."""
        found = self.tables.query(
            f"SELECT count(*) AS n FROM (SELECT DISTINCT user, client_id FROM {self.rows}) AS own"
        )
        return int(found["n"][0].as_py())

    def advices(self, replication: Replication) -> tuple[Advice, ...]:
        """Return the advice for each quota type that was used, whatever the capacity, once limits were tried."""
        plan, tiers = self._plan, self.tiers()
        defaults = {kind: default_of(kind, tier["lowest"], plan) for kind, tier in tiers.items()}
        named = self.named(defaults)
        choices = self._by_kind(
            f"""SELECT quota_type, clients - place AS above, needed FROM {self._ranked}
            WHERE clients - place IN ({", ".join(map(str, CHOICES))}) ORDER BY above"""
        )
        curves = self._by_kind(
            f"""SELECT quota_type, below, count(*) FILTER (WHERE replayed > below) AS clients
            FROM {self._steps} JOIN {self.rows} AS own ON kind = quota_type
            WHERE below >= 0 GROUP BY quota_type, below ORDER BY below"""
        )
        brokers = self._by_kind(
            f"""SELECT quota_type, broker_id, count(*) AS clients
            FROM {self._needs} JOIN (SELECT {_CLIENT} FROM {self.rows}) AS own USING ({_CLIENT})
            GROUP BY quota_type, broker_id ORDER BY broker_id"""
        )
        advices = []
        for kind, default in defaults.items():
            own, at_brokers = [each for each in named if each.quota_type is kind], brokers[kind]
            overrides = [
                Override(demand=each, limit=limit, wanted=limit, broker_count=len(at_brokers))
                for each in own
                if each.needed > default
                for limit in [neat_limit(kind.key, each.needed * plan.headroom)]
            ]
            advice = Advice(
                quota_type=kind,
                plan=plan,
                default=default,
                overrides=tuple(overrides),
                lowest_default=tiers[kind]["lowest"],
                wanted_default=default,
                **{name: tiers[kind][name] for name in ("clients", "held", "partial")},
                named=tuple(own),
                explained=next((each for each in own if plan.name_of(each) == plan.explained), None),
                choices=tuple(Choice(row["above"], default_of(kind, row["needed"], plan)) for row in choices[kind]),
                curve=tuple((row["below"], row["clients"]) for row in curves[kind]),
                loads=tuple(self._load(kind, row, default, overrides, replication) for row in at_brokers),
            )
            advices.append(advice)
        return tuple(advices)

    def _load(
        self, kind: QuotaType, row: Row, default: float, overrides: Sequence[Override], replication: Replication
    ) -> BrokerLoad:
        broker_id, clients = row["broker_id"], row["clients"]
        here = [each.limit for each in overrides if any(at.broker_id == broker_id for at in each.demand.brokers)]
        return BrokerLoad(
            broker_id=broker_id,
            clients=clients,
            limits=math.fsum([default * (clients - len(here)), *here]),
            replication=replication.get(broker_id, {}).get(kind, 0.0),
            capacity=self._plan.capacity(kind, broker_id),
            capacity_share=self._plan.capacity_share,
        )

    def named(self, defaults: Mapping[QuotaType, float]) -> list[Demand]:
        """Return the clients that need more than the default or stand out, the neediest first."""
        plan = self._plan
        asked = {*dict(plan.priorities), *([] if plan.explained is None else [plan.explained])}
        names = self.tables.add("names", pa.table({"asked": pa.array(sorted(asked), pa.string())}))
        limits = " ".join(f"WHEN '{kind.value}' THEN {default!r}" for kind, default in defaults.items())
        named = self.tables.define(
            "named",
            f"""SELECT {_CLIENT}, by_need <= {NEEDIEST_SHOWN} OR asked IS NOT NULL AS is_shown FROM (SELECT *,
                row_number() OVER (PARTITION BY quota_type ORDER BY needed DESC, user DESC, client_id DESC) AS by_need,
                row_number() OVER (PARTITION BY quota_type, is_held ORDER BY CASE WHEN is_unknown THEN 0 ELSE 1 END,
                    needed DESC, user, client_id) AS by_held,
                row_number() OVER (PARTITION BY quota_type, is_partial ORDER BY peak DESC, user, client_id) AS by_peak
            FROM {self.rows} LEFT JOIN {names} ON asked = {self._name}) AS placed
            WHERE needed > CASE quota_type {limits} END OR by_need <= {NEEDIEST_SHOWN} OR asked IS NOT NULL
                OR (is_held AND by_held <= {NAMED}) OR (is_partial AND by_peak <= {NAMED})""",
            keep=True,
        )
        return self._demands_of(named, self._trials(f"SELECT {_CLIENT} FROM {named} WHERE is_shown"))

    def _trials(self, names: str) -> Trials:
        rows = self.tables.query(
            f"""SELECT {_KEY}, below, max({_SHARE.format("throttle_ms")}) AS share
            FROM {self._needs} JOIN ({names}) AS names USING ({_CLIENT})
                JOIN {self._steps} ON quota_type = kind AND below >= 0 AND {self._has_name}
                LEFT JOIN (SELECT {_KEY}, quota AS below, throttle_ms FROM {self._tried}) AS tried
                USING ({_KEY}, below)
            GROUP BY {_KEY}, below ORDER BY {_KEY}, below"""
        )
        by_broker = groupby((list(row.values()) for row in rows.to_pylist()), key=lambda row: tuple(row[:4]))
        return {
            key: tuple(Trial(limit=limit, throttled_share=share) for *_, limit, share in own) for key, own in by_broker
        }

    def _demands_of(self, names: str, trials: Trials | None = None) -> list[Demand]:
        """Return the clients with these names, the neediest first, each with what it needs at every broker."""
        rows = self.tables.query(
            f"""SELECT *, demand AS rate FROM {self._needs} JOIN (SELECT {_CLIENT} FROM {names}) AS named
            USING ({_CLIENT}) ORDER BY {_KEY}"""
        ).to_pylist()
        rates, implied = ("broker_id", "p50", "p99", "peak", "active_s", "needed"), fields(ImpliedDemand)
        found = []
        for (kind, user, client_id), at_brokers in groupby(rows, key=_client_of):
            brokers = tuple(
                BrokerDemand(
                    **{name: row[name] for name in rates},
                    implied=ImpliedDemand(**{each.name: row[each.name] for each in implied}),
                    trials=(trials or {}).get((kind, user, client_id, row["broker_id"]), ()),
                )
                for row in at_brokers
            )
            names_of = {"user": user or None, "client_id": client_id or None}
            has_name = all(names_of[column] for column in self._plan.scope.columns)
            found.append(Demand(quota_type=QuotaType(kind), has_name=has_name, brokers=brokers, **names_of))
        return sorted(found, key=lambda each: (each.needed, each.name), reverse=True)

    def outcomes(self, advices: Sequence[Advice], replayed: str) -> tuple[Advice, ...]:
        """Add what a replay of the advised quotas (proposal 0), and of the defaults alone (1), does."""
        names = pa.schema([(name, pa.string()) for name in _CLIENT.split(", ")] + [("has_own", pa.bool_())])
        limited = [(each.quota_type.value, *own.demand.name, True) for each in advices for own in each.overrides]
        own = self.tables.add("own", pa.table(list(zip(*limited, strict=True)) or [()] * 4, schema=names))
        held = (f"max(CASE WHEN proposal = {n} THEN throttle_ms END) AS held_{n}" for n in (0, 1))
        shares = (f"max({_SHARE.format(f'held_{n}')}) AS share_{n}" for n in (0, 1))
        under = self.tables.define(
            "under",
            f"""SELECT *, NOT has_own AND NOT is_partial AND share_0 > {self._plan.time_share!r}
                    AS is_exceeding
            FROM (SELECT {self.rows}.*, share_0, share_1, coalesce(has_own, false) AS has_own FROM {self.rows}
                JOIN (SELECT {_CLIENT}, {", ".join(shares)}
                    FROM {self._needs} LEFT JOIN (SELECT {_KEY}, {", ".join(held)}
                        FROM {replayed} JOIN {self.chosen} USING (cluster) GROUP BY {_KEY}) AS replayed
                    USING ({_KEY}) GROUP BY {_CLIENT}) AS shares USING ({_CLIENT})
                LEFT JOIN {own} USING ({_CLIENT})) AS joined""",
            keep=True,
        )
        figures = self._by_kind(
            f"""SELECT quota_type,
                coalesce(max(CASE WHEN NOT is_partial THEN share_0 END), 0) AS largest_tolerated_share,
                max(CASE WHEN NOT is_partial THEN peak END) AS peak,
                count(*) FILTER (WHERE is_exceeding) AS exceeding_default,
                count(*) FILTER (WHERE is_unknown AND NOT is_exceeding) AS unknown_default
            FROM {under} WHERE NOT has_own GROUP BY quota_type"""
        )
        shown = self.tables.define(
            "shown",
            f"""SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY quota_type, is_exceeding
                ORDER BY share_0 DESC, needed DESC, user DESC, client_id DESC) AS place FROM {under}) AS placed
            WHERE has_own OR (is_exceeding AND place <= {NAMED})""",
            keep=True,
        )
        rows = {
            _client_of(row): row
            for row in self.tables.query(f"SELECT {_CLIENT}, share_0, share_1 FROM {shown}").to_pylist()
        }
        exceeding = self._demands_of(f"(SELECT * FROM {shown} WHERE is_exceeding) AS exceeding")
        return tuple(
            _with_outcomes(
                each,
                (figures.get(each.quota_type) or [{}])[0],
                [demand for demand in exceeding if demand.quota_type is each.quota_type],
                rows,
            )
            for each in advices
        )

    def changes(self, replayed: str) -> dict[QuotaType, LimitChanges]:
        """Compare the advised quotas (proposal 0) with those in force (2), given all rows of a replay."""
        of_proposal = f"""SELECT {_CLIENT}, min(quota) AS quota_{{0}}, max({_SHARE.format("throttle_ms")}) AS held_{{0}}
            FROM {replayed} JOIN {self.chosen} USING (cluster) JOIN {self._demands} USING ({_KEY})
            WHERE proposal = {{1}} GROUP BY {_CLIENT}"""
        changed = self.tables.define(
            "changed",
            f"""SELECT {_CLIENT}, quota_before, quota_after, coalesce(held_before, 0) AS held_before, held_after,
                CASE WHEN quota_before IS NULL OR quota_after < quota_before THEN 'tightened'
                    WHEN quota_after > quota_before THEN 'loosened' ELSE 'unchanged' END AS direction
            FROM ({of_proposal.format("after", 0)}) AS advised
                LEFT JOIN ({of_proposal.format("before", 2)}) AS in_force USING ({_CLIENT})
            WHERE quota_after IS NOT NULL""",
            keep=True,
        )
        counts = self._by_kind(
            f"SELECT quota_type, direction, count(*) AS clients FROM {changed} GROUP BY quota_type, direction"
        )
        order = "greatest(held_after - held_before, 0) DESC, direction DESC, user, client_id"
        rows = self._by_kind(
            f"""SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY quota_type ORDER BY {order}) AS place
                FROM {changed} WHERE direction <> 'unchanged') AS placed WHERE place <= {NAMED} ORDER BY place"""
        )
        return {
            kind: LimitChanges(
                counts=dict.fromkeys(("tightened", "loosened", "unchanged"), 0)
                | {row["direction"]: row["clients"] for row in own},
                first=tuple(LimitChange(*map(row.__getitem__, LimitChange._fields)) for row in rows[kind]),
            )
            for kind, own in counts.items()
        }

    def _by_kind(self, sql: str) -> dict[QuotaType, list[Row]]:
        found: dict[QuotaType, list[Row]] = defaultdict(list)
        for row in self.tables.query(sql).to_pylist():
            found[QuotaType(row.pop("quota_type"))].append(row)
        return found


def default_of(quota_type: QuotaType, lowest: float, plan: RecommendPlan) -> float:
    """Return the default by the limit that enough clients need no more than."""
    return neat_limit(quota_type.key, max(lowest * plan.headroom, plan.least(quota_type)))


def _client_of(row: Row) -> tuple[str, str, str]:
    return row["quota_type"], row["user"], row["client_id"]


def _with_outcomes(
    advice: Advice, figures: Row, under_default: Sequence[Demand], rows: Mapping[tuple[str, str, str], Row]
) -> Advice:
    kind, tolerated = advice.quota_type.value, advice.plan.time_share
    overrides = []
    for each in advice.overrides:
        found = rows[kind, *each.demand.name]
        is_unknown = each.demand.implied.is_held and found["share_1"] <= tolerated
        known = None if is_unknown else found["share_1"]
        overrides.append(replace(each, throttled_share=found["share_0"], throttled_share_at_default=known))
    exceeding = [
        (each.demand, each.throttled_share)
        for each in overrides
        if each.demand.left_out is None and each.throttled_share > tolerated
    ]
    others = [(each, rows[kind, *each.name]["share_0"]) for each in under_default]
    longest = sorted([*exceeding, *others], key=lambda each: (-each[1], -each[0].needed, each[0].name))
    count = len(exceeding) + figures.get("exceeding_default", 0)
    named = {"exceeding": tuple(longest[:NAMED]), "exceeding_clients": count}
    return replace(advice, overrides=tuple(overrides), **named, **figures)
