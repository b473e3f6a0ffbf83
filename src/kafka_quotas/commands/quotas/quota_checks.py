"""Checks for odd quotas, by the stored quotas alone, and their findings.

`doctor` runs them over all that is stored, `alter` over what a change touches.
"""

import math
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar
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
    """It may well be a mistake."""
    NOTE = "note"
    """Good to know."""


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


def finding_about(
    entity: Entity, severity: Severity, *, check: str, sentence: str, remedy: str, key: str | None = None
) -> Finding:
    """Return a finding about one entity."""
    return Finding(
        severity=severity, check=check, about=str(entity), sentence=sentence, remedy=remedy, entity=entity, key=key
    )


def findings_of_change(before: Content, after: Content, changes: Sequence[PlannedChange]) -> tuple[Finding, ...]:
    """Return the findings about what the changes set, and those that appear with them, worst first."""
    changed = {change.entity for change in changes}
    known = {_identity(each) for each in odd_entries(_entries_near(changed, before))}
    of_change = {(change.entity, key) for change in changes if change.new is not None for key in (change.key, None)}
    found = [
        each
        for each in odd_entries(_entries_near(changed, after))
        if _identity(each) not in known or (each.entity, each.key) in of_change
    ]
    return tuple(sorted(found, key=lambda each: ((each.entity, each.key) not in of_change, SEVERITIES[each.severity])))


def _identity(finding: Finding) -> tuple[str, str, str | None]:
    return (finding.check, finding.about, finding.key)


def _entries_near(changed: Iterable[Entity], content: Content) -> list[QuotaEntry]:
    """Return the entries whose findings depend on the quotas of the changed entities."""
    seen = [{kind: _folded_part(each, kind) for kind in _FOLDS} for each in changed]
    return [
        QuotaEntry(entity=entity, quotas=quotas)
        for entity, quotas in content.items()
        if any(_is_near(entity, parts) for parts in seen)
    ]


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
    content = {entry.entity: entry.quotas for entry in entries}
    if any(not _wins_alone(each) for each in entries) or len(entries) > 1:
        from kafka_quotas.commands.quotas.quota_status import quota_statuses  # noqa: PLC0415 - loads the resolution

        yield from (_status_finding(each, content) for each in quota_statuses(entries, static=static) if not each.wins)
    for entry in entries:
        for key, value in sorted(entry.quotas.items()):
            yield from _odd_value(entry.entity, key, value, threads)
        yield from _odd_names(entry.entity)
    yield from _similar_names(entries)
    yield from _same_addresses(entries)


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
            return finding_about(
                entity,
                Severity.WARNING,
                check="shadowed",
                sentence=f"this {key} has no effect: {why}",
                remedy=_way_out(entity, key, winner),
                key=key,
            )
        case "partly":
            why = _precedence(winner, key, content) if winner else "another level takes precedence"
            return finding_about(
                entity,
                Severity.NOTE,
                check="partly-shadowed",
                sentence=f"this {key} applies to clients without a client-id only: {why}",
                remedy="remove one of the two if that is not intended",
                key=key,
            )
        case _:
            keys = ", ".join(each.name for each in QUOTA_KEYS.values() if each.for_ip == (entity.ip is not ABSENT))
            return finding_about(
                entity,
                Severity.ERROR,
                check="ignored-key",
                sentence=f"brokers ignore {key} here: this kind of entity has no such quota",
                remedy=f"remove it, and set a key that belongs here ({keys})",
                key=key,
            )


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
    """Return the options of `alter` that name an entity."""
    named = (
        f"--{_flag(kind)}-default" if name is None else f"--{_flag(kind)} {shlex.quote(name)}"
        for kind, name in entity.parts
    )
    return " ".join(named)


def _odd_value(entity: Entity, key: str, value: float, threads: int | None) -> Iterator[Finding]:
    known = QUOTA_KEYS.get(key)
    if known is None:
        return
    bad = not math.isfinite(value) or value <= 0
    if bad or (known.value_type is not ValueType.DOUBLE and value != int(value)):
        why = "it stops its clients or does nothing at all" if bad else "it must be a whole number"
        yield finding_about(
            entity,
            Severity.ERROR,
            check="invalid-value",
            sentence=f"{key} is {format_number(value)}: {why}, and Kafka in KRaft mode refuses it",
            remedy=f"set a value above 0, or {key}=unlimited",
            key=key,
        )
        return
    if value >= known.unlimited:
        return
    yield from _small_value(entity, key, value)
    if known is REQUEST_PERCENTAGE and value > (threads or THREADS) * 100:
        yield _above_capacity(entity, value, threads)


def _small_value(entity: Entity, key: str, value: float) -> Iterator[Finding]:
    remedy = "raise it, or lower batch.size of its clients"
    size, what, effect = BATCH_BYTES, "batch", "each one is followed by a wait"
    if key == CONSUMER_BYTE_RATE.name:
        remedy = "raise it, or lower max.partition.fetch.bytes of its clients and max.message.bytes of its topics"
        size, what, effect = FETCH_BYTES, "fetch", "a consumer may get nothing at all"
    if key in (PRODUCER_BYTE_RATE.name, CONSUMER_BYTE_RATE.name) and value < size:
        sentence = (
            f"{key} is {format_bytes(value)}/s, less than one {what} of {format_bytes(size)} per second: {effect}"
        )
        yield finding_about(
            entity, Severity.WARNING, check=f"below-one-{what}", sentence=sentence, remedy=remedy, key=key
        )


def _above_capacity(entity: Entity, value: float, threads: int | None) -> Finding:
    count = threads or THREADS
    whose = "the broker with the fewest has" if threads else "by default a broker has"
    return finding_about(
        entity,
        Severity.WARNING if threads else Severity.NOTE,
        check="above-capacity",
        sentence=f"request_percentage is {format_number(value)}, more than all threads together: "
        f"{whose} {count}, which is {count * 100}%",
        remedy=f"set less than {count * 100}, or request_percentage=unlimited for no limit",
        key=REQUEST_PERCENTAGE.name,
    )


def _odd_names(entity: Entity) -> Iterator[Finding]:
    """Yield a finding for names that no client is likely to have."""
    for kind, name in entity.parts:
        trouble = None if name is None else _trouble_with(kind, name)
        if name is not None and trouble is not None:
            sentence, remedy = f"the {kind} {_beginning(name)} {trouble[0]}", trouble[1]
            yield finding_about(entity, Severity.WARNING, check="odd-name", sentence=sentence, remedy=remedy)


def _trouble_with(kind: str, name: str) -> tuple[str, str] | None:
    """Return what is wrong with a name and how to fix it, None for a good name."""
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
    """Yield a finding for names that differ in case, Unicode form, blanks or URL encoding only."""
    for kind in (USER, CLIENT_ID):
        names: dict[str, dict[str, None]] = {}
        for entry in entries:
            name = entry.entity.part(kind)
            if isinstance(name, str):
                names.setdefault(_folded(name), {})[name] = None
        for alike in names.values():
            if len(alike) > 1:
                listed = ", ".join(repr(name) for name in sorted(alike))
                yield Finding(
                    severity=Severity.WARNING,
                    check="similar-names",
                    about=f"{kind}s {listed}",
                    sentence="these names differ in case, blanks or encoding only; Kafka takes them for different ones",
                    remedy="keep the spelling that brokers see, and remove the quotas of the others",
                )


def _folded(name: str) -> str:
    """Return a name without the differences that people overlook."""
    return "".join(unicodedata.normalize("NFKC", unquote(name.replace("+", " "))).casefold().split())


def _same_addresses(entries: Sequence[QuotaEntry]) -> Iterator[Finding]:
    """Yield a finding for an address in several spellings, of which brokers use only one."""
    spellings: dict[str, list[Entity]] = {}
    for entry in entries:
        if isinstance(entry.entity.ip, str):
            spellings.setdefault(_address(entry.entity.ip), []).append(entry.entity)
    for entities in spellings.values():
        if len(entities) > 1:
            yield Finding(
                severity=Severity.ERROR,
                check="same-address",
                about=", ".join(str(entity) for entity in entities),
                sentence="these are one address; which of their quotas counts depends on the order of loading",
                remedy="keep one of them, written as a plain address",
            )


def _address(name: str) -> str:
    plain = canonical_address(name)
    return "localhost" if plain in _LOOPBACK or name.lower() in _LOOPBACK else plain


_FOLDS = {USER: _folded, CLIENT_ID: _folded, IP: _address}
"""What makes two names of a type alike."""
