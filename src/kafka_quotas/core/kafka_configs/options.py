"""The options of `kafka-configs` as parsed from a command line, before they are interpreted.

Options are never abbreviated, `-add-config` is `--add-config`, a value may follow `=`. The parser ignores words that
are no option and everything after `--`. An option that takes a value takes the next word, even one like an option.

**Source:** `kafka.admin.ConfigCommand.ConfigCommandOptions` (Kafka 4.0 before ZooKeeper was removed), joptsimple 5.0.4.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_quotas.core.errors import UsageError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionKind:
    """An option with the name of its value."""

    value: str | None
    """The name of the value; None: it takes none."""
    help: str
    separator: str | None = None
    """The separator of several values."""


OPTIONS: dict[str, OptionKind] = {
    "help": OptionKind(value=None, help="print this text"),
    "version": OptionKind(value=None, help="print the version"),
    "zookeeper": OptionKind(value="urls", help="deprecated: the ZooKeeper to use, host:port"),
    "bootstrap-server": OptionKind(value="servers", help="the brokers to connect to"),
    "bootstrap-controller": OptionKind(value="controllers", help="the controllers to connect to"),
    "command-config": OptionKind(value="file", help="properties of the connection"),
    "alter": OptionKind(value=None, help="change the configuration of the entity"),
    "describe": OptionKind(value=None, help="list the configuration of the entity"),
    "all": OptionKind(value=None, help="list static configuration as well"),
    "entity-type": OptionKind(value="type", help="users, clients, ips or another type of entity"),
    "entity-name": OptionKind(value="name", help="the name of the entity"),
    "entity-default": OptionKind(value=None, help="the default entity of the type"),
    "add-config": OptionKind(value="k1=v1,k2=[v1,v2]", help="keys and values to set"),
    "add-config-file": OptionKind(value="file", help="a properties file with keys and values to set"),
    "delete-config": OptionKind(value="k1,k2", help="keys to remove", separator=","),
    "force": OptionKind(value=None, help="ask nothing"),
    "topic": OptionKind(value="name", help="a topic; refused, for it has no quotas"),
    "client": OptionKind(value="id", help="a client-id, for quotas of clients"),
    "client-defaults": OptionKind(value=None, help="the default of all client-ids"),
    "user": OptionKind(value="name", help="a user, for quotas of users"),
    "user-defaults": OptionKind(value=None, help="the default of all users"),
    "broker": OptionKind(value="id", help="a broker; refused, for it has no quotas"),
    "broker-defaults": OptionKind(value=None, help="the default of all brokers; refused as well"),
    "broker-logger": OptionKind(value="id", help="the loggers of a broker; refused as well"),
    "ip-defaults": OptionKind(value=None, help="the default of all addresses"),
    "ip": OptionKind(value="address", help="an address or host name, for its rate of new connections"),
    "group": OptionKind(value="id", help="a group; refused, for it has no quotas"),
    "client-metrics": OptionKind(value="name", help="a subscription of client metrics; refused, for it has no quotas"),
    "zk-tls-config-file": OptionKind(value="file", help="properties of the TLS connection to ZooKeeper"),
}


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
        """Return the one value of an option, or None if it is missing.

        Raises:
            KafkaConfigsError: A repeated option.
        """
        values = self.values(name)
        if len(values) > 1:
            raise KafkaConfigsError(
                f"Found multiple arguments for option {name}, but you asked for only one",
                error_class=f"{_JOPT}MultipleArgumentsForOptionException",
            )
        return values[0] if values else None


def parse_options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line.

    Raises:
        KafkaConfigsError: An unknown option and for a value that is missing.
    """
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
    rows = [(f"--{name} <{kind.value}>" if kind.value else f"--{name}", kind.help) for name, kind in OPTIONS.items()]
    width = max(len(option) for option, _ in rows)
    return "\n".join(f"{option:<{width}}  {purpose}" for option, purpose in sorted(rows))


def _split(word: str) -> tuple[str, str | None]:
    """Return the name of an option and what follows its `=`, or None.

    Raises:
        KafkaConfigsError: No option has that name.
    """
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
    """Return the values of one occurrence of an option, or one None for a plain option."""
    kind = OPTIONS[name]
    if kind.value is None:
        return (None,)  # a value after `=` is not looked at
    text = next(words, None) if value is None else value
    if text is None:
        raise KafkaConfigsError(
            f"Option {name} requires an argument", error_class=f"{_JOPT}OptionMissingRequiredArgumentException"
        )
    pieces = [piece for piece in text.split(kind.separator) if piece] if kind.separator else []
    return pieces or (text,)
