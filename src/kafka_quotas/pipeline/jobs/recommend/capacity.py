"""The capacity of brokers, what replication and clients take of it at the same time, and fair shares of the rest.

Capacities come in the format of Cruise Control's capacity file:

    {"brokerCapacities": [{"brokerId": "-1", "capacity": {"CPU": "100", "NW_IN": "10000", "NW_OUT": "10000"}}]}

NW_IN and NW_OUT are KiB/s. CPU is `{"num.cores": "8"}`, or a percentage of the whole machine, which implies no number
of cores. Broker -1 is every broker without an entry of its own. DISK is ignored.

A capacity is held against what clients would take at the same time under their limits, minute by minute: limits may
add up to more. Nothing is cut that the record shows to fit. In a minute that doesn't fit, who wants more than a fair
share is cut to it. Shares are weighted max-min fair. Every client gets what it wants up to a common level times its
priority, and the level is as high as the capacity allows: nobody can get more without somebody getting less who has no
more.

**Source:** `BrokerCapacityConfigFileResolver` of Cruise Control; "Data Networks" (Bertsekas, Gallager), section 6.5.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.pipeline.jobs.recommend.advice import (
    Advice,
    Capacities,
    ClientName,
    Demand,
    Override,
    RecommendPlan,
    cut_limit,
)
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS

if TYPE_CHECKING:  # help texts of the commands need this module, and no Arrow
    import numpy as np
    from numpy.typing import NDArray

    from kafka_quotas.pipeline.engine.events import Events
    from kafka_quotas.pipeline.jobs.usage.job import UsageTables

_RESOURCES: Final = (
    (QuotaType.PRODUCE, "NW_IN", 1024.0),
    (QuotaType.FETCH, "NW_OUT", 1024.0),
    (QuotaType.REQUEST, "num.cores", 100.0),
)
"""What limits a quota type, and its factor to the unit of the quota key."""
_SHAPE_HINT: Final = (
    'it is {"brokerCapacities": [{"brokerId": "-1", "capacity": {"CPU": {"num.cores": "8"}, "NW_IN": "10000"}}]}'
)
_MINUTE_S: Final = 60
_USED: Final = {
    QuotaType.PRODUCE: ("bytes", 1.0),
    QuotaType.FETCH: ("bytes", 1.0),
    QuotaType.REQUEST: ("thread_ms", 0.1),
}
"""The column of `usage` with what counts for a capacity, and its factor to the unit of the quota key times seconds."""


def read_capacities(path: Path) -> Capacities:
    """Read a file of capacities.

    Raises:
        UsageError: The file can't be read, is no capacity file, or names no broker.
    """
    try:
        return parse_capacities(read_text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or error}") from error


def parse_capacities(text: str, source: str) -> Capacities:
    """Parse the capacities in a file."""
    try:
        found = {int(entry["brokerId"]): _capacity(entry["capacity"]) for entry in load_json(text)["brokerCapacities"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"no JSON at line {error.lineno}"
        raise UsageError(f"{source} is not a capacity file: {reason}", hint=_SHAPE_HINT) from error
    if not found:
        raise UsageError(f"{source} names no broker", hint=_SHAPE_HINT)
    return found


def _capacity(resources: Mapping[str, Any]) -> dict[QuotaType, float]:
    processors = resources.get("CPU")
    given = {**resources, **(processors if isinstance(processors, Mapping) else {})}
    found = {kind: float(given[name]) * factor for kind, name, factor in _RESOURCES if name in given}
    for kind, name, _ in _RESOURCES:
        if kind in found and not 0 < found[kind] < math.inf:
            raise ValueError(f"{name} is {given[name]}, not a positive figure")
    return found


class Want(NamedTuple):
    """What clients would be allowed at a broker."""

    limit: float
    """What one of them would be allowed, in the unit of the quota key."""
    priority: float = 1.0
    """By which factor its share exceeds that of others, above 0."""
    clients: int = 1
    """Clients of whom each wants that much."""


def fair_level(wants: Iterable[Want], capacity: float) -> float:
    """Return the level up to which wants are met, per unit of priority.

    Args:
        wants: The wants at one broker.
        capacity: What there is to share, in their unit; below 0 counts as 0.

    Returns:
        Infinity if all wants fit.
    """
    left = max(capacity, 0.0)
    ranked = sorted(
        (each for each in wants if each.limit * each.clients > 0), key=lambda each: each.limit / each.priority
    )
    if sum(each.limit * each.clients for each in ranked) <= left:
        return math.inf
    priorities = sum(each.priority * each.clients for each in ranked)
    for each in ranked:
        level = left / priorities
        if each.limit / each.priority > level:
            return level
        left -= each.limit * each.clients
        priorities -= each.priority * each.clients
    return math.inf


Replication = Mapping[int, Mapping[QuotaType, float]]
"""What followers fetch from each broker, and what it fetches as one, in bytes/s."""


def replication_of(events: "Events", chosen: str, *, seconds: int) -> Replication:
    """Return what replication takes of the brokers of a cluster, by their quota types.

    A follower is recognised by the client-id of its fetcher (`BrokerBlockingSender`, Kafka 4.0). `chosen` names the row
    with the cluster, `seconds` is the length of the recording.
    """
    fetched = f"""SELECT broker_id, total_bytes, regexp_extract(client_id, '^broker-([0-9]{{1,9}})-fetcher-[0-9]+$', 1)
            AS follower FROM {events.table(PACKED_EVENTS)} JOIN {chosen} USING (cluster)
        WHERE is_exempt AND quota_type = 'fetch'"""
    rows = events.tables.query(
        f"""SELECT broker_id, CAST(sum(sent) AS BIGINT) AS sent, CAST(sum(received) AS BIGINT) AS received
        FROM (SELECT broker_id, total_bytes AS sent, 0 AS received FROM ({fetched}) AS sent UNION ALL
            SELECT TRY_CAST(follower AS INT), 0, total_bytes FROM ({fetched}) AS got WHERE follower <> '') AS fetched
        GROUP BY broker_id"""
    )
    return {
        row["broker_id"]: {QuotaType.FETCH: row["sent"] / seconds, QuotaType.PRODUCE: row["received"] / seconds}
        for row in rows.to_pylist()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Coincident:
    """What clients would take of one broker in each minute of the recording, in the unit of the quota key."""

    broker_id: int
    starts_ms: "NDArray[np.int64]"
    others: "NDArray[np.float64]"
    """Sums of the clients under the default of which all counts."""
    clients: int
    """How many of these there are."""
    own: "Sequence[tuple[Demand, NDArray[np.float64]]]"
    """What each other client takes, and wants where it was held back."""

    def under(self, limits: Mapping[ClientName, float], default: float) -> "NDArray[np.float64]":
        """Return the sum of all clients under limits, those under the default alone as they were recorded."""
        total = self.others.clip(max=default * self.clients)
        for each, taken in self.own:
            total += taken.clip(max=limits.get(each.name, default))
        return total

    def cuts(
        self, limits: Mapping[ClientName, float], default: float, *, available: float, plan: RecommendPlan
    ) -> tuple[dict[ClientName, float], float]:
        """Return fair shares of those who want more in some minute, and that of the clients under the default."""
        found: dict[ClientName, float] = {}
        for place in (self.under(limits, default) > available).nonzero()[0].tolist():
            mean = self.others[place] / max(self.clients, 1)
            taken = [
                (each, min(own[place], limits.get(each.name, default)), plan.priority(each))
                for each, own in self.own
                if own[place] > 0
            ]
            wants = [Want(limit, priority) for _, limit, priority in taken]
            level = fair_level([*wants, Want(mean, clients=self.clients)], available)
            for each, limit, priority in taken:
                if limit > level * priority:
                    found[each.name] = min(found.get(each.name, math.inf), level * priority)
            default = min(default, level) if mean > level else default
        return found, default


def coincident_loads(used: "UsageTables", chosen: str, advice: Advice, plan: RecommendPlan) -> list[Coincident]:
    """Return what clients of the cluster that `chosen` names took at the same time at each broker."""
    import numpy as np  # noqa: PLC0415 - the command's help must not load it
    import pyarrow as pa  # noqa: PLC0415 - as above

    column, factor = _USED[advice.quota_type]
    demands = {each.demand.name: each.demand for each in advice.overrides}
    preferred = (each for each in advice.named if plan.priority(each) != 1)
    demands |= {each.name: each for each in (*advice.most_partial, *preferred)}
    tables = used.tables
    names = pa.schema([("user", pa.string()), ("client_id", pa.string()), ("place", pa.int64())])
    own = [dict(zip(names.names, (*name, place), strict=True)) for place, name in enumerate(demands)]
    taken = tables.define(
        "taken",
        f"""SELECT broker_id, place, window_start_ms, {column} * CAST({factor} AS DOUBLE) / {_MINUTE_S} AS rate
        FROM {used.windows} JOIN {chosen} USING (cluster)
            LEFT JOIN {tables.add("own", pa.Table.from_pylist(own, names))} USING (user, client_id)
        WHERE quota_type = '{advice.quota_type.value}' AND window_s = {_MINUTE_S}""",
    )
    minutes = tables.query(
        f"""SELECT broker_id, window_start_ms, sum(CASE WHEN place IS NULL THEN rate ELSE 0 END) AS others FROM {taken}
        GROUP BY broker_id, window_start_ms ORDER BY broker_id, window_start_ms"""
    )
    rates = tables.query(f"SELECT * FROM {taken} WHERE place IS NOT NULL")
    brokers, starts_ms, others = (column.to_numpy() for column in minutes.columns)
    own_brokers, places, own_ms, own_rates = (column.to_numpy() for column in rates.columns)
    loads = []
    for load in advice.loads:
        is_here, is_own = brokers == load.broker_id, own_brokers == load.broker_id
        at_ms, wanted = starts_ms[is_here], []
        for place in np.unique(places[is_own]).tolist():
            demand, mine = list(demands.values())[place], is_own & (places == place)
            at_minutes = np.zeros(at_ms.size)
            at_minutes[np.searchsorted(at_ms, own_ms[mine])] = own_rates[mine]
            if demand.is_lower_bound:
                at_minutes[at_minutes > 0] = np.maximum(at_minutes[at_minutes > 0], demand.needed)
            wanted.append((demand, at_minutes))
        clients = load.clients - len(wanted)
        loads.append(
            Coincident(broker_id=load.broker_id, starts_ms=at_ms, others=others[is_here], clients=clients, own=wanted)
        )
    return loads


def within_capacity(advice: Advice, loads: Iterable[Coincident], plan: RecommendPlan) -> Advice:
    """Cut limits to fair shares where clients would take more at the same time than a broker has."""
    known = {each.broker_id: each for each in advice.loads}
    loads = list(loads)
    key, limits, default = advice.quota_type.key, advice.limits(), advice.default
    fair: dict[ClientName, float] = {}
    for load in loads:
        available = known[load.broker_id].available
        shares, least = load.cuts(limits, advice.default, available=available, plan=plan)
        fair |= {name: min(share, fair.get(name, math.inf)) for name, share in shares.items()}
        default = min(default, least)
    default = advice.default if default == advice.default else cut_limit(key, default)
    own = {each.name: each for load in loads for each, _ in load.own}
    shares = {}
    for name, each in own.items():
        kept = limits.get(name, advice.default if plan.priority(each) > 1 else default)
        shares[name] = cut_limit(key, fair[name]) if name in fair else kept
    overrides = [
        Override(demand=own[name], limit=share, wanted=limits.get(name, advice.default))
        for name, share in shares.items()
        if name in limits or share != default
    ]
    overrides.sort(key=lambda each: (each.demand.needed, each.demand.name), reverse=True)
    for load in loads:
        if load.starts_ms.size:
            wanted = load.under(limits, advice.default)
            known[load.broker_id] = replace(
                known[load.broker_id],
                wanted=float(wanted.max()),
                at_ms=int(load.starts_ms[wanted.argmax()]),
                allowed=float(load.under(shares, default).max()),
            )
    return replace(advice, default=default, overrides=tuple(overrides), loads=tuple(known.values()))
