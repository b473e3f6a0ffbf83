"""`load-test produce` and `consume`: a scenario from options, with clients that move records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QuotaKey
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import AS_FAST_AS_POSSIBLE, OfferedRate, Workload
from kafka_quotas.loadtest.run.quotas import KEY_OF
from kafka_quotas.loadtest.scenario.model import Scenario, ScenarioClient, ScenarioQuota, ScenarioTopic

_T = TypeVar("_T")

DEFAULT_TOPIC = "kafka-quotas-load-test"
EMBEDDED_FILL_BYTES = 16_000_000
"""Bytes for consumers in a cluster of the run: the embedded one keeps 5 MB in each of 4 partitions."""
_PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A request for clients with the same work, and their own names, rates and quotas.

    `rates`, `quotas` and `set_quotas` are empty, one value for all clients, or one for each.
    """

    what: ScenarioClient
    """The work of every client."""
    entities: tuple[ClientName, ...]
    duration_s: float
    topic: str = DEFAULT_TOPIC
    topic_is_there: bool = False
    """Whether the topic belongs to the cluster and is neither created nor removed."""
    rates: tuple[OfferedRate, ...] = ()
    quotas: tuple[float | None, ...] = ()
    """Quotas to judge by, in bytes/s per broker, None for unlimited."""
    set_quotas: tuple[float, ...] = ()
    """Quotas to set for the time of the run, in bytes/s per broker."""
    control: str | None = None
    """Label of the client that must not be harmed."""
    warmup_s: float | None = None
    """Warmup in seconds, None for one window."""
    window: QuotaWindow = DEFAULT_WINDOW


def load_scenario(request: LoadRequest) -> Scenario:
    """Build the scenario of a request.

    Raises:
        UsageError: The number of rates or quotas does not match the clients, or the control client is none of them.
    """
    does = request.what.does
    count = len(request.entities)
    rates = one_for_each(request.rates, count, option="--rate") or (AS_FAST_AS_POSSIBLE,) * count
    quotas = one_for_each(request.quotas, count, option="--quota")
    labels = [name.label for name in request.entities]
    if request.control is not None and request.control.removeprefix("/") not in labels:
        raise UsageError(f"--control {request.control} is not one of the clients", hint=f"they are {', '.join(labels)}")
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


def is_unlimited(key: QuotaKey, limit: float) -> bool:
    """Check whether a stored limit means "no limit"."""
    return limit >= key.unlimited


def credentials_of(
    name: ClientName, properties: Mapping[str, str], passwords: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the client properties that authenticate a connection as this user.

    Raises:
        UsageError: A user is given without SASL or TLS, or without a password.
    """
    if name.user in (None, ANONYMOUS):
        return ()
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        raise UsageError(
            f"user {name.user} can't be recognised on a plaintext connection, where everybody is ANONYMOUS",
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
    """Return a quota of this key for each client, from no values, one for all, or one for each.

    Raises:
        UsageError: The number of values differs.
    """
    spread = one_for_each(values, len(names), option="--set-quota")
    return tuple(
        ScenarioQuota(entity=_entity(name), values=((key.name, value),))
        for name, value in zip(names, spread, strict=bool(spread))
    )


def one_for_each(values: Sequence[_T], count: int, *, option: str) -> tuple[_T, ...]:
    """Return one value per entity, or nothing without values.

    Raises:
        UsageError: The option is given neither once nor once for each.
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
    """Return the entity whose quota limits one client: its client-id, and its user where it has one."""
    if name.user is None:
        return Entity.of(client_id=name.client_id)
    return Entity.of(user=name.user, client_id=name.client_id)
