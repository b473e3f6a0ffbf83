"""Checks for odd quotas, by the stored quotas alone, and their findings.

`doctor` runs them over all that is stored, `alter` over what a change touches.
"""

import math
import shlex
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Final
from urllib.parse import unquote

from kafka_quotas.core.changes.plan import Content, PlannedChange
from kafka_quotas.core.described import Described
from kafka_quotas.core.model.entity import ABSENT, CLIENT_ID, IP, USER, Absent, Entity
from kafka_quotas.core.model.quota_key import (
    BATCH_BYTES,
    CONSUMER_BYTE_RATE,
    FETCH_BYTES,
    PRODUCER_BYTE_RATE,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
    ValueType,
    is_threshold_entity,
)
from kafka_quotas.core.model.value_format import format_bytes, format_number, format_quota
from kafka_quotas.core.resolution.quota_resolver import canonical_address
from kafka_quotas.stores import QuotaEntry

if TYPE_CHECKING:
    from kafka_quotas.commands.quotas.quota_status import StoredQuotaStatus


class Severity(StrEnum):
    """How bad a finding is, worst first."""

    ERROR = "error"
    """A stored quota does not do what it says, or stops clients."""
    WARNING = "warning"
    NOTE = "note"


SEVERITIES = {severity: index for index, severity in enumerate(Severity)}
"""The rank of each severity, the worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about a store."""

    DOCUMENT: ClassVar = "severity check about entity finding=sentence remedy"
    severity: Severity
    check: Annotated[str, Described(text="the kind of the finding")]
    about: Annotated[str, Described(text="whom it is about, in words")]
    sentence: str
    remedy: str
    entity: Annotated[Entity | None, Described(text="null where it is about no single entity", prefix="")] = None
    key: str | None = None
    """The quota key it is about, None where it is about a name or a cluster."""


THREADS = 11
"""A broker's num.io.threads and num.network.threads together, by default."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_LONGEST_NAME = 255
"""The longest name that somebody may have meant; Kafka itself takes 32,767 bytes."""


_CHECKS: Final[Mapping[str, tuple[Severity, str, str]]] = {
    "shadowed": (Severity.WARNING, "this {key} has no effect: {why}", "{remedy}"),
    "partly-shadowed": (
        Severity.NOTE,
        "this {key} applies to clients without a client-id only: {why}",
        "remove one of the two if that is not intended",
    ),
    "ignored-key": (
        Severity.ERROR,
        "brokers ignore {key} here: this kind of entity has no such quota",
        "remove it, and set a key that belongs here ({keys})",
    ),
    "invalid-value": (
        Severity.ERROR,
        "{key} is {value}: {why}, and Kafka in KRaft mode refuses it",
        "set a value above 0, or {key}=unlimited",
    ),
    "below-one-batch": (
        Severity.WARNING,
        "{key} is {value}/s, less than one batch of {size} per second: each one is followed by a wait",
        "raise it, or lower batch.size of its clients",
    ),
    "below-one-fetch": (
        Severity.WARNING,
        "{key} is {value}/s, less than one fetch of {size} per second: a consumer may get nothing at all",
        "raise it, or lower max.partition.fetch.bytes of its clients and max.message.bytes of its topics",
    ),
    "above-capacity": (
        Severity.WARNING,
        "{key} is {value}, more than all threads together: {whose} {count}, which is {percent}%",
        "set less than {percent}, or {key}=unlimited for no limit",
    ),
    "odd-name": (Severity.WARNING, "the {kind} {name} {trouble}", "{remedy}"),
    "similar-names": (
        Severity.WARNING,
        "these names differ in case, blanks or encoding only; Kafka takes them for different ones",
        "keep the spelling that brokers see, and remove the quotas of the others",
    ),
    "same-address": (
        Severity.ERROR,
        "these are one address; which of their quotas counts depends on the order of loading",
        "keep one of them, written as a plain address",
    ),
    "quota-callback": (
        Severity.WARNING,
        "client.quota.callback.class={name} decides about quotas: it may ignore all that is stored",
        "read its documentation; what --effective and tree show does not hold there",
    ),
    "broker-unanswered": (
        Severity.WARNING,
        "the cluster lists it, and it could not be asked for its settings: {reason}",
        "check that it runs, and that the address which it advertises can be reached from here",
    ),
    "unreadable-znode": (
        Severity.ERROR,
        "this znode can't be read, and was left out of all other checks: {reason}",
        "fix or delete it in zookeeper-shell; if access is denied, log in as a user that may read it",
    ),
    "empty-znode": (Severity.NOTE, "this znode holds nothing any more{more}", "in zookeeper-shell: delete {path}"),
    "replication-throttle": (
        Severity.WARNING,
        "{name}={value} throttles replication, and {sure}",
        "kafka-configs --alter --entity-type {kind}s {whose} --delete-config {name}",
    ),
    "broker-too-old": (
        Severity.ERROR,
        "{key} came with Kafka 2.7; broker {brokers} is older and ignores it",
        "upgrade those brokers",
    ),
    "group-conflict": (Severity.ERROR, "{problem}; nothing takes these groups", "{way_out}"),
    "group-empty": (
        Severity.WARNING,
        "it has no members, and neither has a group within it: no client is ever in it",
        "add members, or remove it",
    ),
    "member-unreachable": (
        Severity.WARNING,
        "its member {member} gets no client: {earlier} comes before and takes them all",
        "remove one, or change their order: groups within a group come before it, otherwise as declared",
    ),
    "member-unseen": (
        Severity.NOTE,
        "its member {member} fits nobody in {evidence}",
        "check its spelling if its clients are not new: upper and lower case differ",
    ),
    "group-limit-idle": (
        Severity.NOTE,
        "its {key} of {limit} never holds: the groups within it are limited to {sum} together",
        "lower or remove it",
    ),
}
"""How bad each finding is, its sentence and its remedy."""


def found(
    check: str, about: Entity | str, *, key: str | None = None, severity: Severity | None = None, **details: object
) -> Finding:
    """Return a finding about an entity or a name, with the details of its sentence and remedy."""
    usual, sentence, remedy = _CHECKS[check]
    return Finding(
        severity=severity or usual,
        check=check,
        about=str(about),
        sentence=sentence.format(key=key, **details),
        remedy=remedy.format(key=key, **details),
        entity=about if isinstance(about, Entity) else None,
        key=key,
    )


def findings_of_change(before: Content, after: Content, changes: Sequence[PlannedChange]) -> tuple[Finding, ...]:
    """Return the findings about what the changes set, and those that appear with them, worst first."""
    seen = [{kind: _folded_part(each, kind) for kind in _FOLDS} for each in {change.entity for change in changes}]
    near = [entity for entity in {**before, **after} if any(_is_near(entity, parts) for parts in seen)]
    earlier, later = ([QuotaEntry(each, held[each]) for each in near if each in held] for held in (before, after))
    known = {(each.check, each.about, each.key) for each in odd_entries(earlier)}
    of_change = {(change.entity, key) for change in changes if change.new is not None for key in (change.key, None)}
    new = [
        each
        for each in odd_entries(later)
        if (each.check, each.about, each.key) not in known or (each.entity, each.key) in of_change
    ]
    return tuple(sorted(new, key=lambda each: ((each.entity, each.key) not in of_change, SEVERITIES[each.severity])))


def _is_near(entity: Entity, changed: Mapping[str, str | Absent | None]) -> bool:
    """Return whether an entity's findings may depend on an entity with the changed parts.

    The quotas of a named user or address go before those of any default and any client-id.
    """
    if (entity.ip is ABSENT) != (changed[IP] is ABSENT):
        return False
    for kind in _FOLDS:
        name, other = _folded_part(entity, kind), changed[kind]
        if isinstance(name, str) and name != other and (isinstance(other, str) or kind != CLIENT_ID):
            return False
    return True


def _folded_part(entity: Entity, kind: str) -> str | Absent | None:
    name = entity.part(kind)
    return _FOLDS[kind](name) if isinstance(name, str) else name


def odd_entries(
    entries: Sequence[QuotaEntry], *, static: bool = False, threads: int | None = None
) -> Iterator[Finding]:
    """Yield the findings about quotas in the order of the checks.

    Thresholds are no quotas of Kafka and were checked when they were set. `threads` are those of the smallest broker,
    None where unknown.
    """
    entries = [entry for entry in entries if not is_threshold_entity(entry.entity)]
    content = dict(entries)
    if len(entries) > 1 or any(not _wins_alone(each) for each in entries):
        from kafka_quotas.commands.quotas.quota_status import quota_statuses  # noqa: PLC0415 - loads the resolution

        yield from (_status_finding(each, content) for each in quota_statuses(entries, static=static) if not each.wins)
    for entry in entries:
        for key, value in sorted(entry.quotas.items()):
            yield from _odd_value(entry.entity, key, value, threads)
        yield from _odd_names(entry.entity)
    if len(entries) > 1:
        yield from _similar_names(entries)


def _wins_alone(entry: QuotaEntry) -> bool:
    """Return whether an entity gets all its quotas if nothing else is stored.

    It doesn't if a name is empty, or a key is not one of its kind.
    """
    entity, of_ip = entry.entity, entry.entity.ip is not ABSENT
    belongs = all(key in QUOTA_KEYS and QUOTA_KEYS[key].for_ip == of_ip for key in entry.quotas)
    return belongs and all(name != "" for _, name in entity.parts)


def _status_finding(quota: "StoredQuotaStatus", content: Content) -> Finding:
    key, entity, winner = quota.key, quota.entity, quota.shadowed_by
    match quota.status.value:
        case "shadowed":
            why = _precedence(winner, key, content) if winner else "other levels in use take precedence"
            return found("shadowed", entity, key=key, why=why, remedy=_way_out(entity, key, winner))
        case "partly":
            why = _precedence(winner, key, content) if winner else "another level takes precedence"
            return found("partly-shadowed", entity, key=key, why=why)
        case _:
            keys = ", ".join(each.name for each in QUOTA_KEYS.values() if each.for_ip == (entity.ip is not ABSENT))
            return found("ignored-key", entity, key=key, keys=keys)


def _precedence(winner: Entity, key: str, content: Content) -> str:
    limit = content.get(winner, {}).get(key)
    return f"{winner}{'' if limit is None else f' ({format_quota(key, limit)})'} takes precedence"


def _way_out(entity: Entity, key: str, winner: Entity | None) -> str:
    """Return how a quota without effect takes effect.

    A quota of a client-id loses against every default of users; the same with the default user as a pair wins.
    """
    if winner is None:
        return f"remove it with alter --delete-config {key}"
    of_client_id = entity.user is ABSENT and entity.client_id is not ABSENT
    pair = Entity.of(user=None, client_id=entity.client_id)
    if of_client_id and winner.user is None and winner != pair:
        return f"set it with {_options_of(pair)}, which takes precedence over {winner}; or remove {key} of {winner}"
    return f"set it on {winner}, with {_options_of(winner)}; or remove {key} there"


def _options_of(entity: Entity) -> str:
    named = (
        f"--{_flag(kind)}-default" if name is None else f"--{_flag(kind)} {shlex.quote(name)}"
        for kind, name in entity.parts
    )
    return " ".join(named)


def _odd_value(entity: Entity, key: str, value: float, threads: int | None) -> Iterator[Finding]:
    known = QUOTA_KEYS.get(key)
    if known is None:
        return
    shown = format_number(value)
    bad = not math.isfinite(value) or value <= 0
    if bad or (known.value_type is not ValueType.DOUBLE and value != int(value)):
        why = "it stops its clients or does nothing at all" if bad else "it must be a whole number"
        yield found("invalid-value", entity, key=key, value=shown, why=why)
        return
    check, size = _LEAST.get(key, ("", 0))
    if value < size:
        yield found(check, entity, key=key, value=format_bytes(value), size=format_bytes(size))
    count = threads or THREADS
    if known is REQUEST_PERCENTAGE and count * 100 < value < known.unlimited:
        severity = Severity.WARNING if threads else Severity.NOTE
        whose = "the broker with the fewest has" if threads else "by default a broker has"
        details = {"value": shown, "whose": whose, "count": count, "percent": count * 100}
        yield found("above-capacity", entity, key=key, severity=severity, **details)


_LEAST: Final = {
    PRODUCER_BYTE_RATE.name: ("below-one-batch", BATCH_BYTES),
    CONSUMER_BYTE_RATE.name: ("below-one-fetch", FETCH_BYTES),
}
"""What a limit below one batch or fetch per second is called, and the size of that."""


def _odd_names(entity: Entity) -> Iterator[Finding]:
    for kind, name in entity.parts:
        trouble = None if name is None else _trouble_with(kind, name)
        if name is not None and trouble is not None:
            shown, (why, remedy) = _beginning(name), trouble
            yield found("odd-name", entity, kind=kind, name=shown, trouble=why, remedy=remedy)


def _trouble_with(kind: str, name: str) -> tuple[str, str] | None:
    if name == "<default>":
        return "is a name that spells the default, not the default", f"for the default use --{_flag(kind)}-default"
    if kind == USER and name.startswith("User:"):
        return "begins with 'User:', which brokers leave out of the name", f"use {name.removeprefix('User:')!r}"
    if name != name.strip():
        return "begins or ends with a blank", f"use {name.strip()!r} if the blank is not intended"
    if not name.isprintable():
        return "holds characters that can't be seen", "check how the name came here"
    if len(name) > _LONGEST_NAME:
        return f"is {len(name):,} characters long", "check how the name came here"
    return None


def _beginning(name: str) -> str:
    return repr(name) if len(name) <= _LONGEST_NAME else f"that begins with {name[:20]!r}"


def _flag(kind: str) -> str:
    return {USER: "user", CLIENT_ID: "client", IP: "ip"}[kind]


def _similar_names(entries: Sequence[QuotaEntry]) -> Iterator[Finding]:
    """Yield a finding for names that are alike, and for an address that brokers know by one spelling."""
    for kind, fold in _FOLDS.items():
        groups: dict[str, list[Entity]] = {}
        for entry in entries:
            name = entry.entity.part(kind)
            if isinstance(name, str):
                groups.setdefault(fold(name), []).append(entry.entity)
        for alike in groups.values():
            names = sorted({str(entity.part(kind)) for entity in alike})
            if kind != IP and len(names) > 1:
                yield found("similar-names", f"{kind}s {', '.join(map(repr, names))}")
            elif kind == IP and len(alike) > 1:
                yield found("same-address", ", ".join(map(str, alike)))


def _folded(name: str) -> str:
    """Return a name without the differences that people overlook."""
    return "".join(unicodedata.normalize("NFKC", unquote(name.replace("+", " "))).casefold().split())


def _address(name: str) -> str:
    plain = canonical_address(name)
    return "localhost" if plain in _LOOPBACK or name.lower() in _LOOPBACK else plain


_FOLDS = {USER: _folded, CLIENT_ID: _folded, IP: _address}
"""What makes two names of a type alike."""
