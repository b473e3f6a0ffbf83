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

    [[group]]                                   # see core.groups.group
    name = "payments"
    members = [{ user = "checkout" }, { client_id_prefix = "checkout-" }]
    producer_byte_rate = "20MiB"

    [thresholds]
    total = "200MiB"
    topics = { orders = "20MiB" }
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import Diagnostic, Node
from kafka_quotas.core.formats.typed_document import FieldSpec, filled, read_record
from kafka_quotas.core.groups.group import Group, GroupTree
from kafka_quotas.core.model.entity import ABSENT, Absent, Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.core.model.setting import setting
from kafka_quotas.core.model.value_format import parse_bytes
from kafka_quotas.enforcement.config.toml_table import toml_part

ENFORCEMENT: Final = partial(setting, "enforcement")


class Mode(StrEnum):
    """The algorithm by which a rate is measured and enforced."""

    KAFKA = "kafka"
    SMOOTH = "smooth"
    SHADOW = "shadow"


class Scope(StrEnum):
    """The traffic that a limit applies to."""

    BROKER = "broker"
    CLUSTER = "cluster"


class FetchOverQuota(StrEnum):
    """The handling of a fetch of a client that may be over a quota."""

    DELIVER = "deliver"
    KAFKA = "kafka"


class OnViolation(StrEnum):
    """The handling of a client over its quota: a delay, an error, or both in turn."""

    DELAY = "delay"
    ERROR = "error"
    DELAY_THEN_ERROR = "delay-then-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """The settings by which one client is held to its quotas."""

    mode: Mode = ENFORCEMENT(
        "--mode",
        "kafka: Kafka's window. smooth: a bucket of one second, without bursts and rests. "
        "shadow: count what would be done, and enforce nothing.",
        default=Mode.KAFKA,
    )
    scope: Scope = ENFORCEMENT(
        "--scope",
        "broker: each broker has the whole limit, as in Kafka. cluster: one limit over all brokers.",
        default=Scope.BROKER,
    )
    fetch_over_quota: FetchOverQuota = ENFORCEMENT(
        "--fetch-over-quota",
        "deliver: hold a Fetch until its client may have data, and deliver it. kafka: answer with no data and "
        "count nothing, as a broker does.",
        default=FetchOverQuota.DELIVER,
    )
    on_violation: OnViolation = ENFORCEMENT(
        "--on-violation",
        "What a client over its byte rates gets. error: its Produce and Fetch requests are refused with error 89. "
        "delay-then-error: as delay up to --max-throttle-ms, then error.",
        default=OnViolation.DELAY,
    )
    max_throttle_ms: int | None = ENFORCEMENT(
        "--max-throttle-ms MS",
        "The longest throttle time. Default: as long as Kafka makes them.",
        default=None,
        least=1,
    )
    exempt: bool = False
    """Whether the client is held to no quota."""


_Name: TypeAlias = str | Absent | None


EntitySettings: TypeAlias = Mapping[Entity, Mapping[str, Any]]
"""The settings of entities that differ from the daemon's, and their `request_rate`, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """The policies of all clients: the daemon's own and those of entities."""

    default: ClientPolicy = field(default_factory=ClientPolicy)
    """Policy of clients that no entity has settings for."""
    entities: EntitySettings = field(default_factory=dict)
    internal_principals: frozenset[str] = frozenset()
    _by_key: dict[tuple[_Name, _Name], dict[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key = {
            (entity.user, entity.client_id): {name: settings[name] for name in settings if name != _LIMIT}
            for entity, settings in self.entities.items()
        }
        object.__setattr__(self, "_by_key", by_key)

    def policy_of(self, user: str, client_id: str) -> ClientPolicy:
        """Return the policy of a user's client-id."""
        if not self.entities:
            return self.default
        settings: dict[str, Any] = {}
        # The entities that may fit a client, the most specific first.
        for key in product((user, None, ABSENT), (client_id, None, ABSENT)):
            for name, value in self._by_key.get(key, {}).items():
                settings.setdefault(name, value)
        return replace(self.default, **settings)


MAX_THROTTLE_MS: Final = 2**31 - 1


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


_LIMIT: Final = "request_rate"
SETTINGS: Final = (*(each.name for each in fields(ClientPolicy)), _LIMIT)


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

    def settings(self) -> ThresholdSettings:
        totals: dict[str | None, float] = dict(self.brokers.items())
        if self.total is not None:
            totals[None] = self.total
        return ThresholdSettings(topics=self.topics, totals=totals)


def _by_entity(tables: tuple[EntityTable, ...]) -> EntitySettings:
    found: dict[Entity, Mapping[str, Any]] = {}
    for each in tables:
        if each.entity in found:
            raise UsageError(f"{each.entity} has an [[entity]] already")
        found[each.entity] = each.settings()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """The content of a policy file."""

    internal_principals: Annotated[
        frozenset[str], FieldSpec(frozenset, takes=tuple[Annotated[str, FieldSpec(_name)], ...])
    ] = frozenset()
    entities: Annotated[EntitySettings, FieldSpec(_by_entity, takes=tuple[EntityTable, ...], name="entity")] = field(
        default_factory=dict
    )
    groups: Annotated[GroupTree, FieldSpec(GroupTree, takes=tuple[Group, ...], name="group")] = field(
        default_factory=GroupTree
    )
    thresholds: Annotated[ThresholdSettings, FieldSpec(_Thresholds.settings, takes=_Thresholds)] = field(
        default_factory=ThresholdSettings
    )

    @property
    def request_rates(self) -> dict[Entity, float]:
        """Requests per second by entity."""
        return {entity: settings[_LIMIT] for entity, settings in self.entities.items() if _LIMIT in settings}


def read_policy_file(path: Path) -> PolicyFile:
    """Read the policy in a file, or in a table of one as `toml_table.table_path` names it.

    Raises:
        UsageError: The file can't be read or understood.
    """
    return read_record(PolicyFile, toml_part(path, "the daemon's policy"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    groups: Annotated[tuple[Group, ...], FieldSpec(name="group")] = ()
    internal_principals: object = None
    entity: object = None
    thresholds: object = None


def read_groups(path: Path) -> tuple[Group, ...]:
    """Read the groups alone of what `read_policy_file` reads, whether or not they fit together.

    Raises:
        UsageError: The file can't be read, or a group in it not understood.
    """
    return read_record(_Groups, toml_part(path, "the daemon's policy")).groups


def policy_problems(table: Node) -> tuple[Diagnostic, ...]:
    """Return everything wrong with a policy."""
    return filled(PolicyFile, table)[1]
