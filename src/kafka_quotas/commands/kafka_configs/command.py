"""A `kafka-configs` command line, as far as it concerns quotas: the keys that it sets and removes, and its output.

Everything that can be refused without a cluster is refused here, in the order and words of the original. What needs
the stored quotas comes later, from `changes` and `describe_lines`.

In `--add-config` and `--delete-config` commas outside square brackets separate keys and `=` separates values, without
the blanks around them. The brackets themselves are dropped. The last value of a key counts. In a file
brackets are kept.

**Source:** `kafka.admin.ConfigCommand` (Kafka 4.0 before ZooKeeper was removed).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafka_quotas.commands.kafka_configs.options import (
    CLIENTS,
    ILLEGAL_ARGUMENT,
    IPS,
    PURPOSE,
    QUOTA_TYPES,
    USAGE,
    USERS,
    KafkaConfigsError,
    Options,
    check_options,
    entity_filter,
    entity_names,
    entity_types,
    parse_options,
)
from kafka_quotas.core.changes.validation import SCRAM_MECHANISMS, as_hash_map
from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.java import double_text, parse_double
from kafka_quotas.core.model.entity import CLIENT_ID, IP, USER, Entity, QuotaFilter
from kafka_quotas.core.model.quota_key import QUOTA_KEYS

LoadProperties = Callable[[str], Mapping[str, str]]

_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim cuts off
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_COMMA = re.compile("," + _OUTSIDE_BRACKETS)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE_BRACKETS, re.ASCII)
_KEY = re.compile(r"[a-zA-Z0-9._-]*")
_PROPERTIES_SLOTS = 16  # those of a new java.util.Properties


def _added_configs(options: Options, load_properties: LoadProperties) -> Mapping[str, str]:
    added: list[tuple[str, str]] = []
    file = options.value("add-config-file")
    if file is not None:
        added.extend(load_properties(file).items())
    text = options.value("add-config")
    if text is not None:
        added.extend(_pairs(text))
    configs = as_hash_map(added, _PROPERTIES_SLOTS)
    for key in configs:
        if not _KEY.fullmatch(key):
            raise KafkaConfigsError(f"Invalid character found for config key: {key}")
    return configs


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [_EQUALS.split(piece) for piece in _pieces(text)]
    if any(len(pair) != 2 for pair in pairs):
        raise KafkaConfigsError(
            'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or  '
            '"key=[val1,val2]" to group values which contain commas.'
        )
    return [(key.strip(_BLANKS), re.sub(r"[\[\]]", "", value).strip(_BLANKS)) for key, value in pairs]


def _pieces(text: str) -> list[str]:
    """Return the text between commas without empty pieces at the end.

    A text without a comma is one piece, even if it is empty.
    """
    pieces = _COMMA.split(text)
    if len(pieces) == 1:
        return pieces
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


NOT_SUPPORTED = "not supported"
"""The error class of what `kafka-configs` does and this program does not."""

_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_DEFAULT_ITERATIONS = _LEAST_ITERATIONS = 4096
_ON_BROKERS = "using --bootstrap-server."


def _check_keys(types: Sequence[str], names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]) -> None:
    if types[0] == IPS:
        unknown = [key for key in dict.fromkeys([*added, *deleted]) if not _is_quota(key, for_ip=True)]
        if unknown:
            raise KafkaConfigsError(
                f"Only connection quota configs can be added for '{IPS}' {_ON_BROKERS} "
                f"Unexpected config names: {','.join(unknown)}"
            )
    elif types[0] == CLIENTS or len(types) == 2:
        _refuse_unknown("quota", CLIENTS, added, deleted, others=SCRAM_MECHANISMS)
    else:
        _check_user_keys(names, added, deleted)
    if types[0] != IPS and not any(_is_quota(key) for key in (*added, *deleted)) and len(names) != 1:
        raise KafkaConfigsError(
            "Altering user SCRAM credentials should never occur for more zero or multiple users: "
            + _as_scala("List", names),
            error_class="java.lang.IllegalStateException",
        )


def _check_zookeeper_keys(added: Mapping[str, str], deleted: Sequence[str]) -> None:
    if not {*added, *deleted} <= set(SCRAM_MECHANISMS):
        pairs = ", ".join(f"{key}={value}" for key, value in added.items())
        listed = _as_scala("ArrayBuffer" if deleted else "List", deleted)
        raise KafkaConfigsError(
            f"requirement failed: --bootstrap-server option must be specified to update {USERS} configs: "
            f"{{add: {{{pairs}}}, delete: {listed}}}. "
            "User configuration updates using ZooKeeper are only supported for SCRAM credential updates."
        )
    if added or deleted:
        _refuse_credentials()


def _as_scala(name: str, items: Iterable[str]) -> str:
    return f"{name}({', '.join(items)})"


def _refuse_unknown(
    what: str, kind: str, added: Mapping[str, str], deleted: Sequence[str], *, others: Sequence[str] = ()
) -> None:
    for verb, collection, keys in (("added", "Set", list(added)), ("deleted", "ArrayBuffer", deleted)):
        unknown = [key for key in keys if key not in SCRAM_MECHANISMS and not _is_quota(key)]
        unknown += [key for key in keys if key in others]
        if unknown:
            raise KafkaConfigsError(
                f"Only {what} configs can be {verb} for '{kind}' {_ON_BROKERS} "
                f"Unexpected config names: {_as_scala(collection, unknown)}"
            )


def _check_user_keys(names: Sequence[str], added: Mapping[str, str], deleted: Sequence[str]) -> None:
    _refuse_unknown("quota and SCRAM credential", USERS, added, deleted)
    if not {*added, *deleted} & set(SCRAM_MECHANISMS):
        return
    if "" in names:
        raise KafkaConfigsError(
            f"The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials {_ON_BROKERS}"
        )
    if any(_is_quota(key) for key in (*added, *deleted)):
        raise KafkaConfigsError(
            f"Cannot alter both quota and SCRAM credential configs simultaneously for '{USERS}' {_ON_BROKERS}"
        )
    for mechanism, credential in added.items():
        _check_credential(mechanism, credential)
    _refuse_credentials()


def _check_credential(mechanism: str, credential: str) -> None:
    match = _CREDENTIAL.fullmatch(credential)
    if match is None:
        constant = mechanism.replace("-", "_")  # it is the name of the Java constant that is printed
        raise KafkaConfigsError(f"Invalid credential property {constant}={credential}")
    given = "-1" if match[1] is None else match[1]
    if not given.strip("-"):
        raise KafkaConfigsError(f'For input string: "{given}"', error_class="java.lang.NumberFormatException")
    iterations = _DEFAULT_ITERATIONS if given == "-1" else int(given)
    if iterations < _LEAST_ITERATIONS:
        raise KafkaConfigsError(
            f"Iterations {iterations} is less than the minimum {_LEAST_ITERATIONS} required for {mechanism}",
            error_class=ILLEGAL_ARGUMENT,
        )


def _refuse_credentials() -> None:
    raise KafkaConfigsError(
        "SCRAM credentials are not quotas; nothing was changed",
        error_class=NOT_SUPPORTED,
        hint="use Kafka's own kafka-configs for them",
    )


def _is_quota(key: str, *, for_ip: bool = False) -> bool:
    return key in QUOTA_KEYS and QUOTA_KEYS[key].for_ip == for_ip


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
        named = zip(self.types, self.names, strict=True)
        return Entity.from_pairs((QUOTA_TYPES[kind], name or None) for kind, name in named)

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
        """Return the keys to set, then those to remove (None), given what is stored for the entity."""
        missing = [key for key in self.deleted if key not in stored]
        if missing:
            raise KafkaConfigsError(
                f"Invalid config(s): {','.join(missing)}",
                error_class="org.apache.kafka.common.errors.InvalidConfigurationException",
            )
        added = tuple((key, _number(key, text)) for key, text in self.added.items())
        return (*added, *((key, None) for key in self.deleted))


def checked_options(arguments: Sequence[str], *, resolves: Callable[[str], bool]) -> Options:
    """Return the options of the arguments after checking their combination."""
    options = parse_options(arguments)
    if not arguments or options.has("help"):
        raise KafkaConfigsError(PURPOSE, error_class=USAGE)
    if not options.has("version"):
        check_options(options, resolves=resolves)
    return options


def command_of(options: Options, *, load_properties: LoadProperties) -> KafkaConfigsCommand:
    """Return the command of checked options."""
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
        + ", ".join(f"{key}={double_text(value)}" for key, value in quotas.items())
        for found, quotas in entries
    ]


def _alter_command(
    options: Options, types: tuple[str, ...], names: tuple[str, ...], load_properties: LoadProperties
) -> KafkaConfigsCommand:
    on_brokers = not options.has("zookeeper")
    if on_brokers and len(types) != len(names):
        raise KafkaConfigsError("An entity name must be specified for every entity type")
    added = _added_configs(options, load_properties)
    deleted = tuple(key.strip(_BLANKS) for key in options.values("delete-config"))
    _refuse_other_types(types)
    if on_brokers:
        _check_keys(types, names, added, deleted)
    elif len(types) != len(names):
        raise KafkaConfigsError(
            "--entity-name or --entity-default must be specified with each --entity-type for --alter"
        )
    else:
        _check_zookeeper_keys(added, deleted)
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
        return parse_double(text)
    except InvalidQuotaError as error:
        raise KafkaConfigsError(f"Cannot parse quota configuration value for {key}: {text}") from error


def _described(found: Entity) -> str:
    return ", ".join(
        f"the default {_LABELS[kind]}" if name is None else f"{_LABELS[kind]} '{name}'" for kind, name in found.parts
    )
