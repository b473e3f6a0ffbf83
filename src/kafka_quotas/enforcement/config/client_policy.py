"""How a client is held to its quotas, by which entity's policy, and the file that says so.

Invariants: each setting is looked for on its own, from the most specific entity that fits a client to the least, as
limits are (levels 1 to 8), and falls back to the daemon's own. The file also has the limits that no store knows; it is
refused whole if a part of it is not understood, with every fault:

    internal_principals = ["broker"]

    [[entity]]
    user = "alice"
    client_id = "reports"
    request_rate = 50
    on_violation = "error"

    [[entity]]
    client_id_default = true
    mode = "smooth"

    [thresholds]
    total = "200MiB"
    topics = { orders = "20MiB" }
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import Diagnostic, Node
from kafka_quotas.core.formats.typed_document import FieldSpec, filled, read_record
from kafka_quotas.core.model.entity import ABSENT, Absent, Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.model.setting import SettingSpec
from kafka_quotas.core.model.value_format import parse_bytes
from kafka_quotas.enforcement.config.toml_table import toml_part

ENFORCEMENT: Final = partial(SettingSpec, "enforcement")


class Mode(StrEnum):
    """The algorithm by which a rate is measured and enforced."""

    KAFKA = "kafka"
    """Kafka's sliding window."""
    SMOOTH = "smooth"
    """A bucket of one second, without the window's bursts and rests."""
    SHADOW = "shadow"
    """Kafka's window, measured and logged but not enforced."""


class Scope(StrEnum):
    """The traffic that a limit applies to."""

    BROKER = "broker"
    """Each broker's traffic, as in Kafka."""
    CLUSTER = "cluster"
    """The traffic of all brokers together."""


class FetchOverQuota(StrEnum):
    """The handling of a fetch of a client that may be over a quota."""

    DELIVER = "deliver"
    """It begins when there is room for it, and its data passes."""
    KAFKA = "kafka"
    """It gets an empty response, and its bytes do not count."""


class OnViolation(StrEnum):
    """The handling of a client over its quota: a delay, an error, or both in turn."""

    DELAY = "delay"
    ERROR = "error"
    DELAY_THEN_ERROR = "delay-then-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """The settings by which one client is held to its quotas."""

    mode: Annotated[
        Mode,
        ENFORCEMENT(
            "--mode",
            "kafka: Kafka's window. smooth: a bucket of one second, without bursts and rests. "
            "shadow: count what would be done, and enforce nothing.",
        ),
    ] = Mode.KAFKA
    scope: Annotated[
        Scope,
        ENFORCEMENT(
            "--scope", "broker: each broker has the whole limit, as in Kafka. cluster: one limit over all brokers."
        ),
    ] = Scope.BROKER
    fetch_over_quota: Annotated[
        FetchOverQuota,
        ENFORCEMENT(
            "--fetch-over-quota",
            "deliver: hold a Fetch until its client may have data, and deliver it. kafka: answer with no data and "
            "count nothing, as a broker does.",
        ),
    ] = FetchOverQuota.DELIVER
    on_violation: Annotated[
        OnViolation,
        ENFORCEMENT(
            "--on-violation",
            "What a client over its byte rates gets. error: its Produce and Fetch requests are refused with error 89. "
            "delay-then-error: as delay up to --max-throttle-ms, then error.",
        ),
    ] = OnViolation.DELAY
    max_throttle_ms: Annotated[
        int | None,
        ENFORCEMENT(
            "--max-throttle-ms MS", "The longest throttle time. Default: as long as Kafka makes them.", least=1
        ),
    ] = None
    exempt: bool = False
    """Whether the client is held to no quota."""


_Name: TypeAlias = str | Absent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPolicy:
    """The settings of one entity that differ from the daemon's."""

    entity: Entity
    settings: dict[str, Any]
    """Values of `ClientPolicy` fields by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """The policies of all clients: the daemon's own and those of entities."""

    default: ClientPolicy = field(default_factory=ClientPolicy)
    """Policy of clients that no entity has settings for."""
    entities: tuple[EntityPolicy, ...] = ()
    internal_principals: frozenset[str] = frozenset()
    """Principals exempt from quotas as brokers are."""
    _by_key: dict[tuple[_Name, _Name], dict[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key = {(each.entity.user, each.entity.client_id): each.settings for each in self.entities}
        object.__setattr__(self, "_by_key", by_key)

    def policy_of(self, user: str, client_id: str) -> ClientPolicy:
        """Return the policy of a user's client-id."""
        if not self.entities:
            return self.default
        settings: dict[str, Any] = {}
        for key in _levels(user, client_id):
            for name, value in self._by_key.get(key, {}).items():
                settings.setdefault(name, value)
        return replace(self.default, **settings)


def _levels(user: str, client_id: str) -> Iterable[tuple[_Name, _Name]]:
    """Return the entities that may fit a client, most specific first."""
    return (
        (user, client_id),
        (user, None),
        (user, ABSENT),
        (None, client_id),
        (None, None),
        (None, ABSENT),
        (ABSENT, client_id),
        (ABSENT, None),
    )


MAX_THROTTLE_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """The content of a policy file."""

    internal_principals: frozenset[str] = frozenset()
    entities: tuple[EntityPolicy, ...] = ()
    request_rates: Mapping[Entity, float] = field(default_factory=dict)
    """Requests per second by entity."""
    thresholds: ThresholdSettings = field(default_factory=ThresholdSettings)


def read_policy_file(path: Path) -> PolicyFile:
    """Read the policy in a file, or in a table of one as `toml_table.table_path` names it.

    Raises:
        UsageError: The file can't be read or understood.
    """
    return read_record(_Policy, toml_part(path, "the daemon's policy")).content()


def policy_problems(table: Node) -> tuple[Diagnostic, ...]:
    """Return everything wrong with a policy."""
    return filled(_Policy, table)[1]


def _name(text: str) -> str:
    if not text:
        raise UsageError("a name is empty", hint="user_default = true, or client_id_default, means everybody else")
    return text


def _whole_ms(value: int) -> int:
    if not 1 <= value <= MAX_THROTTLE_MS:
        raise UsageError(f"it must be a whole number from 1 on, not {value}", hint="it is milliseconds")
    return value


def _rate(value: float) -> float:
    if not 0 < value < math.inf:
        raise UsageError(f"it must be a number above 0, not {value:g}", hint="it is requests per second")
    return value


def _size(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UsageError(f"not a size: {value!r}", hint='for example "20MiB"')
    size = float(parse_bytes(str(value)))
    if not size > 0:
        raise UsageError(f"it must be above 0, not {value!r}", hint="it is bytes per second")
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityTable:
    """A table of an entity: who it is, the settings of its `ClientPolicy`, and one limit."""

    user: Annotated[str | None, FieldSpec(_name)] = None
    user_default: bool = False
    client_id: Annotated[str | None, FieldSpec(_name)] = None
    client_id_default: bool = False
    mode: Mode | None = None
    scope: Scope | None = None
    fetch_over_quota: FetchOverQuota | None = None
    on_violation: OnViolation | None = None
    max_throttle_ms: Annotated[
        int | None, FieldSpec(_whole_ms, about="The longest throttle time, in milliseconds.")
    ] = None
    exempt: Annotated[bool | None, FieldSpec(about="Whether the client is held to no quota.")] = None
    request_rate: Annotated[float | None, FieldSpec(_rate, about="Requests per second.")] = None

    def __post_init__(self) -> None:
        if self.entity == Entity.of():
            raise UsageError("it names no user and no client_id", hint='user = "alice", or user_default = true')
        if not self.settings():
            raise UsageError("it sets nothing", hint=f"settings are {', '.join(SETTINGS)}")
        if self.on_violation is OnViolation.DELAY_THEN_ERROR and self.max_throttle_ms is None:
            raise UsageError(
                "on_violation = 'delay-then-error' needs max_throttle_ms", hint="it says how long the delay may be"
            )

    @property
    def entity(self) -> Entity:
        """The entity that the table names."""
        return Entity.of(
            user=_part("user", self.user, is_default=self.user_default),
            client_id=_part("client_id", self.client_id, is_default=self.client_id_default),
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings that the table has."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}


SETTINGS: Final = (*(each.name for each in fields(ClientPolicy)), "request_rate")
"""Settings of an entity: the fields of `ClientPolicy`, and one limit."""


def _part(kind: str, name: str | None, *, is_default: bool) -> str | Absent | None:
    """Return the name of a part, None for the default, `ABSENT` for none."""
    if name is not None and is_default:
        raise UsageError(f"{kind} and {kind}_default exclude each other")
    return None if is_default else ABSENT if name is None else name


_Size: TypeAlias = Annotated[float, FieldSpec(_size, takes=object)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thresholds:
    total: _Size | None = None
    brokers: Mapping[str, _Size] = field(default_factory=dict)
    topics: Mapping[str, _Size] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refused = self.settings().refusal()
        if refused is not None:
            raise refused

    def settings(self) -> ThresholdSettings:
        totals: dict[str | None, float] = dict(self.brokers.items())
        if self.total is not None:
            totals[None] = self.total
        return ThresholdSettings(topics=self.topics, totals=totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Policy:
    internal_principals: tuple[Annotated[str, FieldSpec(_name)], ...] = ()
    entity: tuple[EntityTable, ...] = ()
    thresholds: _Thresholds = field(default_factory=_Thresholds)

    def __post_init__(self) -> None:
        seen: set[Entity] = set()
        for number, table in enumerate(self.entity, start=1):
            if table.entity in seen:
                raise UsageError(f"entity.{number}: {table.entity} has an [[entity]] already")
            seen.add(table.entity)

    def content(self) -> PolicyFile:
        settings = {table.entity: table.settings() for table in self.entity}
        rates = {entity: found.pop("request_rate") for entity, found in settings.items() if "request_rate" in found}
        return PolicyFile(
            internal_principals=frozenset(self.internal_principals),
            entities=tuple(EntityPolicy(entity=entity, settings=found) for entity, found in settings.items()),
            request_rates=rates,
            thresholds=self.thresholds.settings(),
        )
