"""How a client is held to its quotas, by which entity's policy, and the file that says so.

Invariants: each setting is looked for on its own, from the most specific entity that fits a client to the least, as
limits are (levels 1 to 8), and falls back to the daemon's own. The file also has the limits that no store knows; it is
refused as soon as a part of it is not understood, with one line that names the entity at fault:

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import ABSENT, Absent, Entity
from kafka_quotas.core.model.threshold import ThresholdSettings
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.enforcement.config.toml_table import read_toml


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

    mode: Mode = Mode.KAFKA
    scope: Scope = Scope.BROKER
    fetch_over_quota: FetchOverQuota = FetchOverQuota.DELIVER
    on_violation: OnViolation = OnViolation.DELAY
    max_throttle_ms: int | None = None
    """Longest throttle time, None for Kafka's own."""
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


_TOP: Final = ("internal_principals", "entity", "thresholds")
_WHO: Final = ("user", "user_default", "client_id", "client_id_default")
_THRESHOLDS: Final = ("total", "brokers", "topics")
MAX_THROTTLE_MS: Final = 2**31 - 1

_Table: TypeAlias = Mapping[str, Any]


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
    document = read_toml(path, "the daemon's policy")
    try:
        return _policy(document)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def policy_problems(document: _Table) -> list[tuple[str, UsageError]]:
    """Return everything wrong with a policy, each with the path of its entry (`entity.2.mode`)."""
    found: list[tuple[str, UsageError]] = []
    for name, value in document.items():
        if name == "entity" and isinstance(value, list):
            for number, table in enumerate(value, start=1):
                found += _entity_problems(f"entity.{number}", table)
        elif name == "thresholds" and isinstance(value, Mapping):
            for path, part in _threshold_parts(value):
                found += _problem_of(f"thresholds.{path}", {"thresholds": part})
        else:
            found += _problem_of(name, {name: value})
    return found or _problem_of("", document)


def _entity_problems(path: str, table: object) -> list[tuple[str, UsageError]]:
    if not isinstance(table, Mapping):
        return _problem_of(path, {"entity": [table]})
    who = {name: value for name, value in table.items() if name in _WHO}
    found = _problem_of(path, {"entity": [{**who, "exempt": True}]})
    anybody = {"user": "anybody", "max_throttle_ms": 1}
    for name in [each for each in table if each not in _WHO]:
        found += _problem_of(f"{path}.{name}", {"entity": [{**anybody, name: table[name]}]})
    return found or _problem_of(path, {"entity": [table]})


def _threshold_parts(table: _Table) -> Iterator[tuple[str, _Table]]:
    for name, value in table.items():
        if name in ("brokers", "topics") and isinstance(value, Mapping):
            for key, each in value.items():
                yield f"{name}.{key}", {name: {key: each}}
        else:
            yield name, {name: value}


def _problem_of(path: str, document: _Table) -> list[tuple[str, UsageError]]:
    try:
        _policy(document)
    except UsageError as error:
        message = error.message.removeprefix("entity 1: ") if path else error.message
        return [(path, UsageError(message, hint=error.hint))]
    return []


def _policy(document: _Table) -> PolicyFile:
    _refuse_others(document, _TOP)
    tables = document.get("entity", [])
    if not isinstance(tables, list):
        raise UsageError("entity is not a list of tables", hint="write [[entity]] with two brackets")
    policies: dict[Entity, EntityPolicy] = {}
    rates: dict[Entity, float] = {}
    for number, table in enumerate(tables, start=1):
        try:
            entity = _entity(table)
            _refuse_twice(entity, policies)
            settings = _settings(table)
        except UsageError as error:
            raise UsageError(f"entity {number}: {error.message}", hint=error.hint) from None
        rate = settings.pop("request_rate", None)
        if rate is not None:
            rates[entity] = rate
        policies[entity] = EntityPolicy(entity=entity, settings=settings)
    return PolicyFile(
        internal_principals=_names(document, "internal_principals"),
        entities=tuple(policies.values()),
        request_rates=rates,
        thresholds=_thresholds(_table(document, "thresholds")),
    )


def _refuse_twice(entity: Entity, before: Mapping[Entity, EntityPolicy]) -> None:
    if entity in before:
        raise UsageError(f"{entity} has an [[entity]] already")


def _entity(table: _Table) -> Entity:
    user, client_id = _part(table, "user"), _part(table, "client_id")
    if user is ABSENT and client_id is ABSENT:
        raise UsageError("it names no user and no client_id", hint='user = "alice", or user_default = true')
    return Entity.of(user=user, client_id=client_id)


def _part(table: _Table, name: str) -> str | Absent | None:
    """Return the name of a part, None for the default, `ABSENT` for none."""
    is_default = table.get(f"{name}_default", False)
    if not isinstance(is_default, bool):
        raise UsageError(f"{name}_default is neither true nor false")
    if name not in table:
        return None if is_default else ABSENT
    if is_default:
        raise UsageError(f"{name} and {name}_default exclude each other")
    if not isinstance(table[name], str) or not table[name]:
        raise UsageError(f"{name} is not a name: {table[name]!r}", hint=f"{name}_default = true means everybody else")
    return str(table[name])


def _settings(table: _Table) -> dict[str, Any]:
    _refuse_others(table, (*_WHO, *SETTINGS))
    settings = {name: SETTINGS[name].read(name, value) for name, value in table.items() if name in SETTINGS}
    if not settings:
        raise UsageError("it sets nothing", hint=f"settings are {', '.join(SETTINGS)}")
    if settings.get("on_violation") is OnViolation.DELAY_THEN_ERROR and "max_throttle_ms" not in settings:
        raise UsageError(
            "on_violation = 'delay-then-error' needs max_throttle_ms", hint="it says how long the delay may be"
        )
    return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetting:
    """One setting of an entity: the values that the parser takes and the file's JSON schema allows."""

    kind: type[StrEnum | bool | int | float]
    """Type of the value: a word, a truth, a whole number from 1 to `MAX_THROTTLE_MS`, or a number above 0."""
    description: str = ""
    """Meaning of the value in the schema."""
    unit: str = ""

    def read(self, name: str, value: object) -> Any:
        """Return a value of the file in the type of the setting.

        Raises:
            UsageError: The setting can't have this value.
        """
        if issubclass(self.kind, StrEnum):
            if value not in [member.value for member in self.kind]:
                raise UsageError(f"{name} can't be {value!r}", hint=f"one of {', '.join(self.kind)}")
            return self.kind(value)
        if self.kind is bool:
            if not isinstance(value, bool):
                raise UsageError(f"{name} is neither true nor false: {value!r}")
            return value
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if self.kind is int and not (isinstance(number, int) and 1 <= number <= MAX_THROTTLE_MS):
            raise UsageError(f"{name} must be a whole number from 1 on, not {value!r}", hint=f"it is {self.unit}")
        if not 0 < number < math.inf:
            raise UsageError(f"{name} must be a number above 0, not {value!r}", hint=f"it is {self.unit}")
        return self.kind(number)


SETTINGS: Final = {
    "mode": PolicySetting(kind=Mode),
    "scope": PolicySetting(kind=Scope),
    "fetch_over_quota": PolicySetting(kind=FetchOverQuota),
    "on_violation": PolicySetting(kind=OnViolation),
    "max_throttle_ms": PolicySetting(
        kind=int, unit="milliseconds", description="The longest throttle time, in milliseconds."
    ),
    "exempt": PolicySetting(kind=bool, description="Whether the client is held to no quota."),
    "request_rate": PolicySetting(kind=float, unit="requests per second", description="Requests per second."),
}
"""Settings of an entity: the fields of `ClientPolicy`, and one limit."""


def _thresholds(table: _Table) -> ThresholdSettings:
    _refuse_others(table, _THRESHOLDS, where="thresholds")
    totals: dict[str | None, float] = {
        broker: _size(f"brokers.{broker}", value) for broker, value in _table(table, "brokers").items()
    }
    if "total" in table:
        totals[None] = _size("total", table["total"])
    topics = {topic: _size(f"topics.{topic}", value) for topic, value in _table(table, "topics").items()}
    settings = ThresholdSettings(topics=topics, totals=totals)
    refused = settings.refusal()
    if refused is not None:
        raise UsageError(f"thresholds: {refused.message}", hint=refused.hint)
    return settings


def _size(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UsageError(f"thresholds: {name} is not a size: {value!r}", hint='for example "20MiB"')
    size = float(parse_bytes(str(value)))
    if not size > 0:
        raise UsageError(f"thresholds: {name} must be above 0, not {value!r}", hint="it is bytes per second")
    return size


def _refuse_others(table: object, known: tuple[str, ...], *, where: str = "") -> None:
    if not isinstance(table, Mapping):
        raise UsageError(f"{where or 'it'} is not a table")
    for name in table:
        if name not in known:
            raise UsageError(f"unknown setting {name!r}", hint=f"known are {', '.join(known)}")


def _table(table: _Table, name: str) -> _Table:
    value = table.get(name, {})
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is not a table", hint=f"write [{name}]")
    return value


def _names(table: _Table, name: str) -> frozenset[str]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise UsageError(f"{name} is not a list of names", hint=f'{name} = ["broker"]')
    return frozenset(value)
