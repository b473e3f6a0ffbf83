"""The entities that a command names: the pairing of the types and names in its options.

Long options are paired by their order on the command line: the first name with the first type, an `--entity-default`
counting as an empty name. Short options have an order of their own, client before user, defaults after names. An empty
name is the default entity. A type without a name means any entity of the type.

**Source:** `ConfigCommand.ConfigCommandOptions.entityTypes`, `entityNames` and `parseClientQuotaEntity` (4.0).
"""

from collections.abc import Sequence

from kafka_quotas.core.kafka_configs.options import KafkaConfigsError, Options
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.model.quota_filter import FilterComponent, Match, QuotaFilter

USERS, CLIENTS, IPS = "users", "clients", "ips"
BROKERS, BROKER_LOGGERS = "brokers", "broker-loggers"
QUOTA_TYPES = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}

NAMED_FLAGS = {
    "topic": "topics",
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": BROKER_LOGGERS,
    "ip": IPS,
    "client-metrics": "client-metrics",
    "group": "groups",
}
"""The short options with a name, in the order in which they count."""
DEFAULT_FLAGS = {"client-defaults": CLIENTS, "user-defaults": USERS, "broker-defaults": BROKERS, "ip-defaults": IPS}
"""The short options for defaults; they count after all named ones."""


def entity_types(options: Options) -> list[str]:
    """Return the types named, long options first."""
    flags = {**NAMED_FLAGS, **DEFAULT_FLAGS}
    return [*options.values("entity-type"), *(kind for flag, kind in flags.items() if options.has(flag))]


def entity_names(options: Options) -> list[str]:
    """Return the names, an empty one for a default, long options first.

    Raises:
        KafkaConfigsError: A short option was given twice.
    """
    long = [value or "" for name, value in options.found if name in {"entity-name", "entity-default"}]
    short = [options.value(flag) or "" for flag in NAMED_FLAGS if options.has(flag)]
    return [*long, *short, *("" for flag in DEFAULT_FLAGS if options.has(flag))]


def entity(types: Sequence[str], names: Sequence[str]) -> Entity:
    """Return the quota entity of the types with their names."""
    return Entity.from_pairs((QUOTA_TYPES[kind], name or None) for kind, name in zip(types, names, strict=True))


def entity_filter(types: Sequence[str], names: Sequence[str]) -> QuotaFilter:
    """Return the strict filter of a command's request to brokers.

    Raises:
        KafkaConfigsError: More names than types.
    """
    if len(names) > len(types):
        raise KafkaConfigsError("More entity names specified than entity types")
    given: list[str | None] = [*names, *[None] * (len(types) - len(names))]
    return QuotaFilter(
        components=tuple(_component(QUOTA_TYPES[kind], name) for kind, name in zip(types, given, strict=True)),
        strict=True,
    )


def _component(kind: str, name: str | None) -> FilterComponent:
    if name is None:
        return FilterComponent(entity_type=kind, match=Match.ANY)
    if name == "":
        return FilterComponent(entity_type=kind, match=Match.DEFAULT)
    return FilterComponent(entity_type=kind, match=Match.EXACT, name=name)
