"""The entity that the options of a command line name.

Invariants: a default is a flag, never a magic text; an empty name is refused; the short form (--user, --client, --ip
and their defaults) and the long form of kafka-configs exclude each other.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from kafka_quotas.cli.completion.values import LONG_TYPES, OF_ITSELF, OF_THE_STORE
from kafka_quotas.cli.framework.option_groups import Without, flag, option, option_group
from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.model.entity import (
    BROKER,
    CLIENT_ID,
    IP,
    TOPIC,
    USER,
    Entity,
    FilterComponent,
    Match,
    QuotaFilter,
)

_SHORT_NAMES = {CLIENT_ID: "client", USER: "user", IP: "ip", TOPIC: "topic", BROKER: "broker"}
"""The options that name an entity, in the order of kafka-configs: clients before users."""
_PRINCIPAL_TYPE = "User:"
"""What brokers write before the name of a principal, as in ACLs."""


@option_group("Client")
class ClientNames:
    """The options that name a client."""

    user: str | None = option(
        "--user NAME", help="A user (principal) by name, without 'User:'.", autocompletion=OF_THE_STORE["--user"]
    )
    client: str | None = option("--client ID", help="A client-id.", autocompletion=OF_THE_STORE["--client"])
    ip: str | None = option("--ip ADDRESS", help="An address or host name.", autocompletion=OF_THE_STORE["--ip"])

    def check(self) -> None:
        """Check the names."""
        for name, value in (("--user", self.user), ("--client", self.client), ("--ip", self.ip)):
            if value is not None:
                _checked_name(name, value)


@option_group("Entity")
class EntityOptions(ClientNames):
    """The options that name an entity, or all entities that fit."""

    user_default: bool = flag(
        "--user-default", "--user-defaults", help="The default for users without a quota of their own."
    )
    client_default: bool = flag(
        "--client-default", "--client-defaults", help="The default for client-ids without one of their own."
    )
    ip_default: bool = flag("--ip-default", "--ip-defaults", help="The default for addresses without one of their own.")
    topic: str | None = option("--topic NAME", help="A topic, for its threshold; kept in a local store alone.")
    broker: str | None = option(
        "--broker ID", help="A broker by node id, for its total threshold; in a local store alone."
    )
    broker_default: bool = flag(
        "--broker-default", "--broker-defaults", help="The total of brokers without one of their own."
    )
    entity_type: list[str] | None = option(
        "--entity-type TYPE",
        help="users, clients or ips, as in kafka-configs; the first --entity-type goes with the first --entity-name "
        "or --entity-default, and so on.",
        autocompletion=OF_ITSELF["--entity-type"],
    )
    entity_name: list[str] | None = option(
        "--entity-name NAME",
        help="The name that goes with an --entity-type.",
        autocompletion=OF_THE_STORE["--entity-name"],
    )
    entity_default: int = option(
        "--entity-default",
        default=0,
        count=True,
        show_default=False,
        help="The default of an --entity-type, in place of a name.",
    )


ShortFilter = Annotated[
    EntityOptions, Without("topic", "broker", "broker_default", "entity_type", "entity_name", "entity_default")
]


def selected_parts(options: EntityOptions, order: Sequence[str] = ()) -> tuple[FilterComponent, ...]:
    """Return the parts that the options name, possibly none.

    The part that kafka-configs names in its output comes first. `order` has the names of the options in the order of
    the command line.
    """
    short, long = tuple(_short_parts(options)), tuple(_long_parts(options, order))
    if short and (long or options.entity_name or options.entity_default):
        raise UsageError(
            "--entity-type and the short entity options exclude each other",
            hint="write --user alice --client app, or --entity-type users --entity-name alice ...",
        )
    parts = short or long
    types = [part.entity_type for part in parts]
    for entity_type in types:
        if types.count(entity_type) > 1:
            raise UsageError(f"the {entity_type} is named twice", hint="one command is about one entity")
    return parts


def entity_of(parts: Sequence[FilterComponent]) -> Entity:
    """Return the entity that the parts name."""
    if not parts:
        raise UsageError(
            "no entity is named",
            hint="--user NAME, --client ID, --ip ADDRESS, or a default: --user-default, --client-default, --ip-default",
        )
    for part in parts:
        if part.match is Match.ANY:
            option = f"--{_SHORT_NAMES[part.entity_type]}"
            raise UsageError(f"the {part.entity_type} has no name", hint=f"{option} NAME, or {option}-default")
    return Entity.from_pairs((part.entity_type, part.name) for part in parts)


def selected_filter(options: EntityOptions, order: Sequence[str] = ()) -> QuotaFilter:
    """Return the filter of the parts that the options name, see `selected_parts`."""
    return QuotaFilter(components=selected_parts(options, order))


def _checked_name(option: str, name: str) -> str:
    if not name:
        default = "--entity-default" if option == "--entity-name" else f"{option}-default"
        raise UsageError(
            f"{option} is empty", hint=f"is the shell variable behind it set? the default is a flag: {default}"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option} is not valid UTF-8: {name!a}", hint="check the encoding of the terminal") from None
    if option == "--user" and name.startswith(_PRINCIPAL_TYPE):
        bare = name.removeprefix(_PRINCIPAL_TYPE)
        raise UsageError(
            f"a user is named without 'User:': {name}",
            hint=f"--user {bare}; if the principal's name itself begins so: --entity-type users --entity-name {name}",
        )
    return name


def _short_parts(options: EntityOptions) -> Iterator[FilterComponent]:
    for entity_type, name in _SHORT_NAMES.items():
        value = getattr(options, name, None)
        if value is not None:
            yield _exact(entity_type, _checked_name(f"--{name}", value))
    for entity_type, name in _SHORT_NAMES.items():
        if getattr(options, f"{name}_default", False):
            yield FilterComponent(entity_type=entity_type, match=Match.DEFAULT)


def _long_parts(options: EntityOptions, order: Sequence[str]) -> Iterator[FilterComponent]:
    """Yield the i-th type with the i-th of names and defaults, types beyond those as any name."""
    types, names = options.entity_type or (), iter(options.entity_name or ())
    named = [next(names) if name == "entity_name" else None for name in order if name in _NAMINGS]
    if len(named) > len(types):
        raise UsageError(
            "an --entity-name or --entity-default has no --entity-type", hint="--entity-type users --entity-name alice"
        )
    for index, text in enumerate(types):
        entity_type = LONG_TYPES.get(text)
        if entity_type is None:
            of_groups = "groups are declared in files: kafka-quotas apply FILE, or the daemon's policy file"
            types_hint = near_hint(text, LONG_TYPES, otherwise="the types are users, clients and ips")
            hint = of_groups if text in ("group", "groups") else types_hint
            raise UsageError(f"unknown entity type: {text!r}", hint=hint)
        if index >= len(named):
            yield FilterComponent(entity_type=entity_type, match=Match.ANY)
        elif (name := named[index]) is None:
            yield FilterComponent(entity_type=entity_type, match=Match.DEFAULT)
        else:
            yield _exact(entity_type, _checked_name("--entity-name", name))


_NAMINGS = ("entity_name", "entity_default")


def _exact(entity_type: str, name: str) -> FilterComponent:
    return FilterComponent(entity_type=entity_type, match=Match.EXACT, name=name)
