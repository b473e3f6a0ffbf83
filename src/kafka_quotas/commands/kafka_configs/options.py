"""The options of `kafka-configs`: parsing, the entities that they name, and the combinations that are allowed.

Options are never abbreviated, `-add-config` is `--add-config`, a value may follow `=`. The parser ignores words that
are no option and everything after `--`. An option that takes a value takes the next word, even one like an option.

Long options are paired by their order on the command line: the first name with the first type, an `--entity-default`
counting as an empty name. Short options have an order of their own, client before user, defaults after names. An empty
name is the default entity. A type without a name means any entity of the type.

**Source:** `kafka.admin.ConfigCommand.ConfigCommandOptions` (Kafka 4.0 before ZooKeeper was removed), its `checkArgs`
of Kafka 4.3.1, and of 3.9 if `--zookeeper` is given; joptsimple 5.0.4.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import (
    CLIENT_ID,
    DEFAULT_NAME,
    IP,
    USER,
    FilterComponent,
    Match,
    QuotaFilter,
    is_address_or_host,
)
from kafka_quotas.core.model.quota_key import INT_MAX

_JOPT = "joptsimple."
ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
USAGE = "usage"
PURPOSE = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, "
    "client-metrics or group"
)


class KafkaConfigsError(UsageError):
    """A refusal of `kafka-configs`: its text, its Java class of error, and its exit code.

    `error_class` is the Java class, or `usage` where the original prints its usage after the text.
    """

    exit_code = 1

    def __init__(self, message: str, *, error_class: str = ILLEGAL_ARGUMENT, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.error_class = error_class


OPTIONS: dict[str, tuple[str | None, str]] = {
    "help": (None, "print this text"),
    "version": (None, "print the version"),
    "zookeeper": ("urls", "deprecated: the ZooKeeper to use, host:port"),
    "bootstrap-server": ("servers", "the brokers to connect to"),
    "bootstrap-controller": ("controllers", "the controllers to connect to"),
    "command-config": ("file", "properties of the connection"),
    "alter": (None, "change the configuration of the entity"),
    "describe": (None, "list the configuration of the entity"),
    "all": (None, "list static configuration as well"),
    "entity-type": ("type", "users, clients, ips or another type of entity"),
    "entity-name": ("name", "the name of the entity"),
    "entity-default": (None, "the default entity of the type"),
    "add-config": ("k1=v1,k2=[v1,v2]", "keys and values to set"),
    "add-config-file": ("file", "a properties file with keys and values to set"),
    "delete-config": ("k1,k2", "keys to remove"),
    "force": (None, "ask nothing"),
    "topic": ("name", "a topic; refused, for it has no quotas"),
    "client": ("id", "a client-id, for quotas of clients"),
    "client-defaults": (None, "the default of all client-ids"),
    "user": ("name", "a user, for quotas of users"),
    "user-defaults": (None, "the default of all users"),
    "broker": ("id", "a broker; refused, for it has no quotas"),
    "broker-defaults": (None, "the default of all brokers; refused as well"),
    "broker-logger": ("id", "the loggers of a broker; refused as well"),
    "ip-defaults": (None, "the default of all addresses"),
    "ip": ("address", "an address or host name, for its rate of new connections"),
    "group": ("id", "a group; refused, for it has no quotas"),
    "client-metrics": ("name", "a subscription of client metrics; refused, for it has no quotas"),
    "zk-tls-config-file": ("file", "properties of the TLS connection to ZooKeeper"),
}
"""The name of each option's value, None for an option without one, and what it is for."""
_LISTS = ("delete-config",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a command line in their order, each with its value."""

    found: tuple[tuple[str, str | None], ...]
    ignored: tuple[str, ...] = ()
    """The words that are neither an option nor a value, which the original silently ignores."""

    def has(self, *names: str) -> bool:
        """Return whether any of these options was given."""
        return any(name in names for name, _ in self.found)

    def values(self, name: str) -> tuple[str, ...]:
        """Return every value of an option, in order."""
        return tuple(value for found, value in self.found if found == name and value is not None)

    def value(self, name: str) -> str | None:
        """Return the one value of an option, or None if it is missing."""
        values = self.values(name)
        if len(values) > 1:
            raise KafkaConfigsError(
                f"Found multiple arguments for option {name}, but you asked for only one",
                error_class=f"{_JOPT}MultipleArgumentsForOptionException",
            )
        return values[0] if values else None


def parse_options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line."""
    found: list[tuple[str, str | None]] = []
    ignored: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            ignored.extend(words)
        elif word.startswith("-") and word != "-":
            name, value = _split(word)
            found.extend((name, each) for each in _values(name, value, words))
        else:
            ignored.append(word)
    return Options(found=tuple(found), ignored=tuple(ignored))


def usage_text() -> str:
    """Return the list of options, one per line."""
    rows = [(f"--{name} <{value}>" if value else f"--{name}", purpose) for name, (value, purpose) in OPTIONS.items()]
    width = max(len(option) for option, _ in rows)
    return "\n".join(f"{option:<{width}}  {purpose}" for option, purpose in sorted(rows))


def _split(word: str) -> tuple[str, str | None]:
    name, equals, value = word.removeprefix("--").partition("=")
    if not word.startswith("--"):
        name = name.removeprefix("-")
        # One hyphen could begin a cluster of one-letter options: the first letter is what is not known then.
        unknown = word[1]
    else:
        unknown = name
    if name not in OPTIONS:
        raise KafkaConfigsError(
            f"{unknown} is not a recognized option", error_class=f"{_JOPT}UnrecognizedOptionException"
        )
    return name, value if equals else None


def _values(name: str, value: str | None, words: Iterator[str]) -> Sequence[str | None]:
    if OPTIONS[name][0] is None:
        return (None,)  # a value after `=` is not looked at
    text = next(words, None) if value is None else value
    if text is None:
        raise KafkaConfigsError(
            f"Option {name} requires an argument", error_class=f"{_JOPT}OptionMissingRequiredArgumentException"
        )
    pieces = [piece for piece in text.split(",") if piece] if name in _LISTS else []
    return pieces or (text,)


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
    """Return the names, an empty one for a default, long options first."""
    long = [value or "" for name, value in options.found if name in {"entity-name", "entity-default"}]
    short = [options.value(flag) or "" for flag in NAMED_FLAGS if options.has(flag)]
    return [*long, *short, *("" for flag in DEFAULT_FLAGS if options.has(flag))]


def entity_filter(types: Sequence[str], names: Sequence[str]) -> QuotaFilter:
    """Return the strict filter of a command's request to brokers."""
    if len(names) > len(types):
        raise KafkaConfigsError("More entity names specified than entity types")
    components = [FilterComponent(entity_type=QUOTA_TYPES[kind], match=Match.ANY) for kind in types]
    for at, name in enumerate(names):
        match = Match.EXACT if name else Match.DEFAULT
        components[at] = replace(components[at], match=match, name=name or None)
    return QuotaFilter(components=tuple(components), strict=True)


_BROKER_SIDE_TYPES = ("topics", CLIENTS, USERS, BROKERS, IPS, "client-metrics", "groups", BROKER_LOGGERS)
_ZOOKEEPER_TYPES = (USERS, BROKERS)
_WITH_DEFAULTS = {USERS, CLIENTS, BROKERS, IPS}
_CONNECTIONS = ("bootstrap-server", "bootstrap-controller", "zookeeper")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def check_options(options: Options, *, resolves: Callable[[str], bool]) -> None:
    """Refuse a combination of options that breaks a rule, with the text of the first one."""
    for is_broken, message, *error_class in _rules(options, resolves):
        if is_broken:
            raise KafkaConfigsError(message, error_class=error_class[0] if error_class else ILLEGAL_ARGUMENT)


Rule = tuple[bool, str] | tuple[bool, str, str]
"""Whether it is broken, the text of the original, and the class of its error if it is not the usual one."""


def _rules(options: Options, resolves: Callable[[str], bool]) -> Iterator[Rule]:
    """Yield the rules in the order of the original, each of which may rely on those before it."""
    has, types = options.has, entity_types(options)
    alters, describes = has("alter"), has("describe")
    yield alters == describes, "Command must include exactly one action: --describe, --alter", USAGE
    for other in ("add-config", "delete-config"):
        yield describes and has(other), f'Option "[describe]" can\'t be used with option "[{other}]"', USAGE
    yield from _type_rules(options, types)
    names = entity_names(options)
    given = [connection for connection in _CONNECTIONS if has(connection)]
    either = "--bootstrap-server or --bootstrap-controller"
    if has("zookeeper"):
        either = "--bootstrap-server, --boostrap-controller, and --zookeeper"  # the misspelling is Kafka's
    yield len(given) > 1, f"Only one of {either} can be specified"
    yield has("all") and has("zookeeper"), "--bootstrap-server must be specified for --all"
    yield (
        has("zk-tls-config-file") and not has("zookeeper"),
        "Only the --zookeeper option can be used with the --zk-tls-config-file option.",
    )
    if any(names):
        yield from _name_rules(options, types, resolves)
    kinds, takes_defaults = ",".join(types), bool(_WITH_DEFAULTS & set(types))
    if describes:
        message = f"--entity-default must not be specified with --describe of {kinds}"
        yield has("entity-default") and not takes_defaults, message
        message = f"An entity name must be specified with --describe of {kinds}"
        yield BROKER_LOGGERS in types and not any(names), message
    if alters:
        message = "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
        yield takes_defaults and not names, message
        message = f"An entity name must be specified with --alter of {kinds}"
        yield not takes_defaults and not any(names), message
        message = "Only one of --add-config or --add-config-file must be specified"
        yield has("add-config") and has("add-config-file"), message
        message = "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        yield not has("add-config", "add-config-file", "delete-config"), message


def _type_rules(options: Options, types: Sequence[str]) -> Iterator[Rule]:
    repeated = [kind for index, kind in enumerate(types) if kind in types[:index]]
    yield bool(repeated), f"Duplicate entity type(s) specified: {','.join(repeated)}"
    on_brokers = options.has("bootstrap-server", "bootstrap-controller")
    nowhere = not on_brokers and not options.has("zookeeper")
    yield nowhere, "Either --bootstrap-server or --bootstrap-controller must be specified."
    allowed = _BROKER_SIDE_TYPES if on_brokers else _ZOOKEEPER_TYPES
    argument = "--bootstrap-server or --bootstrap-controller" if on_brokers else "--zookeeper"
    for kind in types:
        one_of = f"the entity type must be one of {', '.join(allowed)} with a {argument} argument"
        yield kind not in allowed, f"Invalid entity type {kind}, {one_of}"
    yield not types, "At least one entity type must be specified"
    odd_pair = len(types) > 1 and set(types) != {USERS, CLIENTS}
    yield odd_pair, f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together"
    mixed = options.has("entity-name", "entity-type", "entity-default") and options.has(*NAMED_FLAGS, *DEFAULT_FLAGS)
    yield mixed, "--entity-{type,name,default} should not be used in conjunction with specific entity flags"


def _name_rules(options: Options, types: Sequence[str], resolves: Callable[[str], bool]) -> Iterator[Rule]:
    begin = f"The entity name for {types[0]} must be a valid"
    if {BROKERS, BROKER_LOGGERS} & set(types):
        for broker_id in _given_values(options, "entity-name", "broker", "broker-logger"):
            is_id = _INTEGER.fullmatch(broker_id) and -INT_MAX - 1 <= int(broker_id) <= INT_MAX
            yield not is_id, f"{begin} integer broker id, but it is: {broker_id}"
    if IPS in types:
        for address in _given_values(options, "entity-name", "ip"):
            is_known = address == DEFAULT_NAME or is_address_or_host(address, resolves)
            yield not is_known, f"{begin} IP or resolvable host, but it is: {address}"


def _given_values(options: Options, *names: str) -> list[str]:
    return [value for value in map(options.value, names) if value is not None]
