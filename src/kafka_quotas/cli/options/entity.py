"""The entity that the options of a command line name.

Invariants: a default is a flag, never a magic text; an empty name is refused; the short form (--user, --client, --ip
and their defaults) and the long form of kafka-configs exclude each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_quotas.cli.completion.values import LONG_TYPES
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import BROKER, CLIENT_ID, IP, TOPIC, USER, Entity
from kafka_quotas.core.model.quota_filter import FilterComponent, Match, QuotaFilter

_SHORT_NAMES = {USER: "--user", CLIENT_ID: "--client", IP: "--ip", TOPIC: "--topic", BROKER: "--broker"}
_UNSET = "is the shell variable behind it set? the default is a flag: {option}-default"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityOptions:
    """The entity options as they were typed."""

    user: str | None = None
    client: str | None = None
    ip: str | None = None
    user_default: bool = False
    client_default: bool = False
    ip_default: bool = False
    user_any: bool = False
    client_any: bool = False
    ip_any: bool = False
    topic: str | None = None
    broker: str | None = None
    broker_default: bool = False
    entity_types: Sequence[str] = ()
    entity_names: Sequence[str] = ()
    order: Sequence[str] = ()
    """The names of the options in the order of the command line."""


def selected_parts(options: EntityOptions) -> tuple[FilterComponent, ...]:
    """Return the parts that the options name, possibly none.

    The part that kafka-configs names in its output comes first.

    Raises:
        UsageError: A name is empty, a type is named twice or unknown, or the two forms are mixed.
    """
    short, long = tuple(_short_parts(options)), tuple(_long_parts(options))
    if short and (long or options.entity_names or "entity_default" in options.order):
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
    """Return the entity that the parts name.

    Raises:
        UsageError: There are no parts, or a part has neither a name nor the default.
    """
    if not parts:
        raise UsageError(
            "no entity is named",
            hint="--user NAME, --client ID, --ip ADDRESS, or a default: --user-default, --client-default, --ip-default",
        )
    for part in parts:
        if part.match is Match.ANY:
            option = _SHORT_NAMES[part.entity_type]
            raise UsageError(f"the {part.entity_type} has no name", hint=f"{option} NAME, or {option}-default")
    return Entity.from_pairs((part.entity_type, part.name) for part in parts)


def filter_of(parts: Sequence[FilterComponent], *, strict: bool) -> QuotaFilter:
    """Return the filter of these parts.

    A strict filter matches only entities without other types.
    """
    return QuotaFilter(components=tuple(parts), strict=strict)


def checked_name(option: str, name: str) -> str:
    """Return the name.

    Raises:
        UsageError: It is empty or no Unicode text.
    """
    if not name:
        raise UsageError(f"{option} is empty", hint=_UNSET.format(option=option))
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option} is not valid UTF-8: {name!a}", hint="check the encoding of the terminal") from None
    return name


def _short_parts(options: EntityOptions) -> Iterator[FilterComponent]:
    """Yield the parts of the short options in the order of kafka-configs.

    Names come before defaults, and clients before users.
    """
    for entity_type, name in ((CLIENT_ID, options.client), (USER, options.user), (IP, options.ip)):
        if name is not None:
            yield _exact(entity_type, checked_name(_SHORT_NAMES[entity_type], name))
    for entity_type, name in ((TOPIC, options.topic), (BROKER, options.broker)):
        if name is not None:
            yield _exact(entity_type, checked_name(_SHORT_NAMES[entity_type], name))
    defaults = (
        (CLIENT_ID, options.client_default),
        (USER, options.user_default),
        (IP, options.ip_default),
        (BROKER, options.broker_default),
    )
    for entity_type, given in defaults:
        if given:
            yield FilterComponent(entity_type=entity_type, match=Match.DEFAULT)
    for entity_type, given in ((CLIENT_ID, options.client_any), (USER, options.user_any), (IP, options.ip_any)):
        if given:
            yield FilterComponent(entity_type=entity_type, match=Match.ANY)


def _long_parts(options: EntityOptions) -> Iterator[FilterComponent]:
    """Yield the i-th type with the i-th of names and defaults.

    Types beyond those match anything.
    """
    names = iter(options.entity_names)
    given = [next(names) if name == "entity_name" else None for name in options.order if name in _NAMINGS]
    if len(given) > len(options.entity_types):
        raise UsageError(
            "an --entity-name or --entity-default has no --entity-type",
            hint="--entity-type users --entity-name alice",
        )
    for index, text in enumerate(options.entity_types):
        entity_type = LONG_TYPES.get(text)
        if entity_type is None:
            raise UsageError(f"unknown entity type: {text!r}", hint="the types are users, clients and ips")
        if index >= len(given):
            yield FilterComponent(entity_type=entity_type, match=Match.ANY)
            continue
        name = given[index]
        if name is None:
            yield FilterComponent(entity_type=entity_type, match=Match.DEFAULT)
        else:
            yield _exact(entity_type, _long_name(name))


_NAMINGS = ("entity_name", "entity_default")


def _long_name(name: str) -> str:
    if not name:
        raise UsageError(
            "--entity-name is empty",
            hint="is the shell variable behind it set? the default is a flag: --entity-default",
        )
    return checked_name("--entity-name", name)


def _exact(entity_type: str, name: str) -> FilterComponent:
    return FilterComponent(entity_type=entity_type, match=Match.EXACT, name=name)
