"""A `kafka-configs` command line, as far as it concerns quotas, and the output of the command.

Everything that can be refused without a cluster is refused here, in the order and words of the original. What needs
the stored quotas comes later, from `changes` and `describe_lines`.

**Source:** `kafka.admin.ConfigCommand` (Kafka 4.0 before ZooKeeper was removed).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.java import double as java_double
from kafka_quotas.core.kafka_configs.checks import check_options
from kafka_quotas.core.kafka_configs.entities import (
    QUOTA_TYPES,
    USERS,
    entity,
    entity_filter,
    entity_names,
    entity_types,
)
from kafka_quotas.core.kafka_configs.grammar import LoadProperties, added_configs, deleted_configs
from kafka_quotas.core.kafka_configs.keys import NOT_SUPPORTED, check_keys, check_zookeeper_keys
from kafka_quotas.core.kafka_configs.options import PURPOSE, USAGE, KafkaConfigsError, Options, parse_options
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.model.quota_filter import QuotaFilter

_LABELS = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}


class Action(Enum):
    """The actions of a command."""

    ALTER = "alter"
    DESCRIBE = "describe"
    VERSION = "version"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfigsCommand:
    """A parsed command: its types and names as it paired them, and the keys to set and to remove."""

    action: Action
    options: Options
    types: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()

    @property
    def entity(self) -> Entity:
        """The entity to alter."""
        return entity(self.types, self.names)

    @property
    def quota_filter(self) -> QuotaFilter:
        """The filter of the entities to describe, or to read before an alteration."""
        return entity_filter(self.types, self.names)

    @property
    def describes_scram(self) -> bool:
        """Whether the original lists SCRAM credentials as well."""
        return self.action is Action.DESCRIBE and self.types == (USERS,) and "" not in self.names

    @property
    def completed_line(self) -> str:
        """The line that reports the altered entity, of a pair one half only, as the original does."""
        kind, name = self.types[0], self.names[0]
        if self.options.has("zookeeper"):
            user = f"user-principal '{name}'" if name else "default user-principal"
            return f"Completed updating config for entity: {user}."
        if name:
            return f"Completed updating config for {kind[:-1]} {name}."
        return f"Completed updating default config for {kind} in the cluster."

    def changes(self, stored: Mapping[str, float]) -> tuple[tuple[str, float | None], ...]:
        """Return the keys to set, then those to remove (None), given what is stored for the entity.

        Raises:
            KafkaConfigsError: A key to remove that is not stored, and for a value that is no number.
        """
        missing = [key for key in self.deleted if key not in stored]
        if missing:
            raise KafkaConfigsError(
                f"Invalid config(s): {','.join(missing)}",
                error_class="org.apache.kafka.common.errors.InvalidConfigurationException",
            )
        added = tuple((key, _number(key, text)) for key, text in self.added.items())
        return (*added, *((key, None) for key in self.deleted))


def checked_options(arguments: Sequence[str], *, resolves: Callable[[str], bool]) -> Options:
    """Return the options of the arguments after checking their combination.

    The original prints nothing before this point.

    Raises:
        KafkaConfigsError: A combination that is not allowed, or a request for help.
    """
    options = parse_options(arguments)
    if not arguments or options.has("help"):
        raise KafkaConfigsError(PURPOSE, error_class=USAGE)
    if not options.has("version"):
        check_options(options, resolves=resolves)
    return options


def command_of(options: Options, *, load_properties: LoadProperties) -> KafkaConfigsCommand:
    """Return the command of checked options.

    Raises:
        KafkaConfigsError: Options that the original refuses, or actions of it other than quotas.
    """
    if options.has("version"):
        return KafkaConfigsCommand(action=Action.VERSION, options=options)
    types, names = tuple(entity_types(options)), tuple(entity_names(options))
    for name in () if options.has("zookeeper") else ("command-config", "bootstrap-server", "bootstrap-controller"):
        options.value(name)  # none of them twice
    if options.has("alter"):
        return _alter_command(options, types, names, load_properties)
    _refuse_other_types(types)
    if not options.has("zookeeper"):
        entity_filter(types, names)
    return KafkaConfigsCommand(action=Action.DESCRIBE, options=options, types=types, names=names)


def describe_lines(entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> list[str]:
    """Return the lines printed for entities and their quotas."""
    return [
        f"Quota configs for {_described(found)} are "
        + ", ".join(f"{key}={java_double.to_string(value)}" for key, value in quotas.items())
        for found, quotas in entries
    ]


def _alter_command(
    options: Options, types: tuple[str, ...], names: tuple[str, ...], load_properties: LoadProperties
) -> KafkaConfigsCommand:
    on_brokers = not options.has("zookeeper")
    if on_brokers and len(types) != len(names):
        raise KafkaConfigsError("An entity name must be specified for every entity type")
    added, deleted = added_configs(options, load_properties), tuple(deleted_configs(options))
    _refuse_other_types(types)
    if on_brokers:
        check_keys(types, names, added, deleted)
    elif len(types) != len(names):
        raise KafkaConfigsError(
            "--entity-name or --entity-default must be specified with each --entity-type for --alter"
        )
    else:
        check_zookeeper_keys(added, deleted)
    return KafkaConfigsCommand(
        action=Action.ALTER, options=options, types=types, names=names, added=added, deleted=deleted
    )


def _refuse_other_types(types: Iterable[str]) -> None:
    others = [kind for kind in types if kind not in QUOTA_TYPES]
    if others:
        raise KafkaConfigsError(
            f"{others[0]} have no quotas",
            error_class=NOT_SUPPORTED,
            hint="use Kafka's own kafka-configs for anything but users, clients and ips",
        )


def _number(key: str, text: str) -> float:
    try:
        return java_double.parse(text)
    except InvalidQuotaError as error:
        raise KafkaConfigsError(f"Cannot parse quota configuration value for {key}: {text}") from error


def _described(found: Entity) -> str:
    return ", ".join(
        f"the default {_LABELS[kind]}" if name is None else f"{_LABELS[kind]} '{name}'" for kind, name in found.parts
    )
