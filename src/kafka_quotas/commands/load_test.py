"""Puts load on a cluster and judges what every client got by its quota."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TypeVar

from kafka_quotas.commands.client import Client
from kafka_quotas.commands.effective import effective
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_config import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quota_key import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaKey
from kafka_quotas.loadtest.cycles import Direction
from kafka_quotas.loadtest.embedded_cluster import EmbeddedCluster
from kafka_quotas.loadtest.offered_rate import AS_FAST_AS_POSSIBLE, OfferedRate
from kafka_quotas.loadtest.plan import EntityLoad, EntityName, LoadPlan
from kafka_quotas.loadtest.progress import Watcher
from kafka_quotas.loadtest.result import LoadResult
from kafka_quotas.loadtest.run import run_load
from kafka_quotas.loadtest.workload import Workload
from kafka_quotas.stores.store import Store

_T = TypeVar("_T")

DEFAULT_TOPIC = "kafka-quotas-load-test"
EMBEDDED_FILL_BYTES = 16_000_000
"""What consumers of the embedded cluster find: it keeps about 5 MB in each of 4 partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What was asked for. `bootstrap` None is the embedded cluster.

    `rates` and `quotas` (bytes/s per broker, None: unlimited) hold nothing, one value for all entities, or one for
    each. Without `quotas` they come from a store where one is given. `warmup_s` None is one quota window. `passwords`
    are SASL passwords by user.
    """

    direction: Direction
    bootstrap: str | None
    entities: tuple[EntityName, ...]
    duration_s: float
    topic: str = DEFAULT_TOPIC
    rates: tuple[OfferedRate, ...] = ()
    quotas: tuple[float | None, ...] = ()
    warmup_s: float | None = None
    window: QuotaWindow = DEFAULT_WINDOW
    record_size: int = 1024
    acks: str = "all"
    enforcers: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)


def load_test(
    request: LoadRequest, *, clock: Clock, store: Store | None = None, watcher: Watcher | None = None
) -> LoadResult:
    """What the run found, with a verdict for every entity.

    Raises `UsageError` where the request can't be meant, and what `run_load` raises.
    """
    plan = plan_load(request, store=store)
    with ExitStack() as stack:
        if request.bootstrap is None:
            cluster = stack.enter_context(EmbeddedCluster())
            cluster.make_topic(request.topic)
            if request.direction is Direction.CONSUME:
                records = max(1, EMBEDDED_FILL_BYTES // request.record_size)
                cluster.fill(request.topic, records=records, record_size=request.record_size)
            plan = replace(plan, bootstrap=cluster.bootstrap)
        return run_load(plan, clock=clock, watcher=watcher)


def shortest_s(request: LoadRequest) -> tuple[float, float]:
    """How long a greedy client must be measured, in seconds: for any verdict on its quota, and for the tight bounds.

    The first window never counts; three throttle cycles take about four windows more.
    """
    window_s = request.window.samples * request.window.window_s
    warmup_s = window_s if request.warmup_s is None else request.warmup_s
    unjudged_s = max(0.0, window_s - warmup_s)
    return unjudged_s + window_s, unjudged_s + 4.0 * window_s


def plan_load(request: LoadRequest, *, store: Store | None = None) -> LoadPlan:
    """The plan that a request means, its quotas and rates resolved.

    Raises `UsageError` where rates or quotas don't fit the entities, or a user comes without SASL or TLS.
    """
    quotas = _quotas(request, store)
    rates = _each(request.rates, request, option="--rate") or (AS_FAST_AS_POSSIBLE,) * len(request.entities)
    window_s = request.window.samples * request.window.window_s
    return LoadPlan(
        bootstrap=request.bootstrap or "",
        entities=tuple(
            EntityLoad(
                name=name,
                workload=Workload(request.direction.value),
                topic=request.topic,
                arrivals_per_second=rate.arrivals_per_second(cost=request.record_size, quota=quota),
                quota=quota,
                record_size=request.record_size,
                acks=request.acks,
                properties=credentials_of(name, request.properties, request.passwords),
            )
            for name, rate, quota in zip(request.entities, rates, quotas, strict=True)
        ),
        duration_s=request.duration_s,
        warmup_s=window_s if request.warmup_s is None else request.warmup_s,
        window=request.window,
        enforcers=request.enforcers,
        properties=tuple(request.properties.items()),
    )


def _quotas(request: LoadRequest, store: Store | None) -> Sequence[float | None]:
    """The quota of every entity: as given, else as the store's entries resolve, else none."""
    given = _each(request.quotas, request, option="--quota")
    if given or store is None:
        return given or tuple(repeat(None, len(request.entities)))
    key = PRODUCER_BYTE_RATE if request.direction is Direction.PRODUCE else CONSUMER_BYTE_RATE
    clients = [Client(user=name.user, client_id=name.client_id) for name in request.entities]
    outcomes = effective(store, clients=clients).outcomes
    limits = [next(quota.limit for quota in outcome.quotas if quota.key == key) for outcome in outcomes]
    return [None if limit is None or is_unlimited(key, limit) else limit for limit in limits]


def is_unlimited(key: QuotaKey, limit: float) -> bool:
    """Whether a stored limit is the one that stands for "no limit"."""
    return limit >= key.unlimited


def _each(values: tuple[_T, ...], request: LoadRequest, *, option: str) -> tuple[_T, ...]:
    """One value per entity, or nothing where nothing was given."""
    count = len(request.entities)
    if len(values) == 1:
        return values * count
    if values and len(values) != count:
        raise UsageError(
            f"{option} is given {len(values)} times for {count} entities",
            hint=f"give {option} once for all, or once per --entity in the same order",
        )
    return values


def credentials_of(
    name: EntityName, properties: Mapping[str, str], passwords: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The properties that make a connection this user's.

    Raises `UsageError` where a user comes without SASL or TLS, or without a password.
    """
    if name.user is None:
        return ()
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        raise UsageError(
            f"user {name.user} can't be told on a plaintext connection, where everybody is ANONYMOUS",
            hint="give -X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN and --passwords FILE",
        )
    if not protocol.startswith("sasl"):
        return ()
    password = passwords.get(name.user, properties.get("sasl.password"))
    if password is None:
        raise UsageError(
            f"user {name.user} has no password",
            hint="give --passwords FILE with lines USER=PASSWORD, or -X sasl.password=..",
        )
    return (("sasl.username", name.user), ("sasl.password", password))
