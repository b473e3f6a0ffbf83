"""`load-test produce` and `consume`: a scenario that is spelled out by options, of clients that move records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QuotaKey
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest.plan.offered_rate import AS_FAST_AS_POSSIBLE, OfferedRate
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run.quotas_in_force import KEY_OF
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, ScenarioQuota, ScenarioTopic

_T = TypeVar("_T")

DEFAULT_TOPIC = "kafka-quotas-load-test"
EMBEDDED_FILL_BYTES = 16_000_000
"""What consumers of a cluster that is started for the run find: the embedded one keeps 5 MB in each of 4 partitions."""
_PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What was asked for: clients that all do what `what` does, with their own names, rates and quotas.

    `rates`, `quotas` (bytes/s per broker to judge by, None: unlimited) and `set_quotas` (the same, to be set for the
    time of the run) hold nothing, one value for all, or one for each. `control` is the label of the client that is to
    stay unharmed. `topic_is_there`: it is a cluster's own and neither made nor removed. `warmup_s` None is one window.
    """

    what: ScenarioClient
    entities: tuple[ClientName, ...]
    duration_s: float
    topic: str = DEFAULT_TOPIC
    topic_is_there: bool = False
    rates: tuple[OfferedRate, ...] = ()
    quotas: tuple[float | None, ...] = ()
    set_quotas: tuple[float, ...] = ()
    control: str | None = None
    warmup_s: float | None = None
    window: QuotaWindow = DEFAULT_WINDOW


def load_scenario(request: LoadRequest) -> Scenario:
    """The scenario that a request means.

    Raises `UsageError` where rates or quotas don't fit the entities, or the control client is none of them.
    """
    does = request.what.does
    count = len(request.entities)
    rates = one_for_each(request.rates, count, option="--rate") or (AS_FAST_AS_POSSIBLE,) * count
    quotas = one_for_each(request.quotas, count, option="--quota")
    labels = [name.label for name in request.entities]
    if request.control is not None and request.control.removeprefix("/") not in labels:
        raise UsageError(f"--control {request.control} is none of the clients", hint=f"they are {', '.join(labels)}")
    return Scenario(
        name=does.value,
        title=f"{does.value} from the command line",
        entities=tuple(
            replace(
                request.what,
                user=name.user,
                client_id=name.client_id,
                topic=request.topic,
                rate=rate,
                judge_by=quotas[index] if quotas else None,
                unlimited=bool(quotas) and quotas[index] is None,
                control=request.control is not None and request.control.removeprefix("/") == name.label,
            )
            for index, (name, rate) in enumerate(zip(request.entities, rates, strict=True))
        ),
        duration_s=request.duration_s,
        warmup_s=request.warmup_s,
        window=request.window,
        topics=(_topic(request),),
        quotas=client_quotas(request.entities, KEY_OF[does], request.set_quotas),
    )


def shortest_s(scenario: Scenario) -> tuple[float, float]:
    """How long a greedy client must be measured, in seconds: for any verdict on its quota, and for the tight bounds.

    The first window never counts; three throttle cycles take about four windows more.
    """
    unjudged_s = max(0.0, scenario.window_s - scenario.unjudged_s)
    return unjudged_s + scenario.window_s, unjudged_s + 4.0 * scenario.window_s


def is_unlimited(key: QuotaKey, limit: float) -> bool:
    """Whether a stored limit is the one that stands for "no limit"."""
    return limit >= key.unlimited


def credentials_of(
    name: ClientName, properties: Mapping[str, str], passwords: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The properties that make a connection this user's.

    Raises `UsageError` where a user comes without SASL or TLS, or without a password.
    """
    if name.user in (None, ANONYMOUS):
        return ()
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        raise UsageError(
            f"user {name.user} can't be told on a plaintext connection, where everybody is ANONYMOUS",
            hint="give -X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN and --passwords FILE",
        )
    if not protocol.startswith("sasl"):
        return ()
    password = passwords.get(name.user or "", properties.get("sasl.password"))
    if password is None:
        raise UsageError(
            f"user {name.user} has no password",
            hint="give --passwords FILE with lines USER=PASSWORD, or -X sasl.password=..",
        )
    return (("sasl.username", name.user or ""), ("sasl.password", password))


def _topic(request: LoadRequest) -> ScenarioTopic:
    if request.topic_is_there:
        return ScenarioTopic(name=request.topic, is_there=True)
    size = request.what.record_size
    fill = max(1, EMBEDDED_FILL_BYTES // size) if request.what.does is Workload.CONSUME else 0
    return ScenarioTopic(name=request.topic, partitions=_PARTITIONS, fill=fill, record_size=size)


def client_quotas(names: Sequence[ClientName], key: QuotaKey, values: Sequence[float]) -> tuple[ScenarioQuota, ...]:
    """A quota of this key for each client, from nothing, one value for all, or one for each.

    Raises `UsageError` for any other number of values.
    """
    spread = one_for_each(values, len(names), option="--set-quota")
    return tuple(
        ScenarioQuota(entity=_entity(name), values=((key.name, value),))
        for name, value in zip(names, spread, strict=bool(spread))
    )


def one_for_each(values: Sequence[_T], count: int, *, option: str) -> tuple[_T, ...]:
    """One value per entity, or nothing where nothing was given.

    Raises `UsageError` where the option is given neither once nor once for each.
    """
    if len(values) == 1:
        return tuple(values) * count
    if values and len(values) != count:
        raise UsageError(
            f"{option} is given {len(values)} times for {count} entities",
            hint=f"give {option} once for all, or once per --entity in the same order",
        )
    return tuple(values)


def _entity(name: ClientName) -> Entity:
    """Whom a quota is for that is to limit one client: its client-id, and its user where it has one."""
    if name.user is None:
        return Entity.of(client_id=name.client_id)
    return Entity.of(user=name.user, client_id=name.client_id)
