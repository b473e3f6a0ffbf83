"""Checks for odd quotas, by the stored quotas alone, and their findings."""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from kafka_quotas.commands.quotas.quota_status import QuotaStatus, StoredQuotaStatus, quota_statuses
from kafka_quotas.core.model.entity import ABSENT, CLIENT_ID, IP, USER, Entity
from kafka_quotas.core.model.quota_key import (
    BATCH_BYTES,
    CONSUMER_BYTE_RATE,
    FETCH_BYTES,
    PRODUCER_BYTE_RATE,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
    ValueType,
)
from kafka_quotas.core.model.threshold import is_threshold_entity
from kafka_quotas.core.model.value_format import format_bytes, format_number
from kafka_quotas.core.resolution.ip_resolver import canonical_address
from kafka_quotas.stores.store import QuotaEntry


class Severity(StrEnum):
    """How bad a finding is, worst first."""

    ERROR = "error"
    """A stored quota does not do what it says, or stops clients."""
    WARNING = "warning"
    """It may well be a mistake."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about a store."""

    severity: Severity
    check: str
    """The kind of finding, for scripts."""
    about: str
    """What the finding is about, in words."""
    sentence: str
    remedy: str
    entity: Entity | None = None
    """The entity it is about, None where it is about something else."""


THREADS = 11
"""A broker's num.io.threads and num.network.threads together, by default."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def finding_about(entity: Entity, severity: Severity, *, check: str, sentence: str, remedy: str) -> Finding:
    """Return a finding about one entity."""
    return Finding(severity=severity, check=check, about=str(entity), entity=entity, sentence=sentence, remedy=remedy)


def odd_entries(
    entries: Sequence[QuotaEntry], *, static: bool = False, threads: int | None = None
) -> Iterator[Finding]:
    """Yield the findings about quotas in the order of the checks.

    Thresholds are no quotas of Kafka and were checked when they were set. `threads` are those of the smallest broker,
    None where unknown.
    """
    entries = [entry for entry in entries if not is_threshold_entity(entry.entity)]
    for quota in quota_statuses(entries, static=static):
        if quota.status is not QuotaStatus.WINS:
            yield _status_finding(quota)
    for entry in entries:
        for key, value in sorted(entry.quotas.items()):
            yield from _odd_value(entry.entity, key, value, threads)
        yield from _odd_names(entry.entity)
    yield from _similar_names(entries)
    yield from _same_addresses(entries)


def _status_finding(quota: StoredQuotaStatus) -> Finding:
    key, entity, before = quota.key, quota.entity, quota.shadowed_by
    match quota.status:
        case QuotaStatus.SHADOWED:
            why = f"{before} goes before it" if before else "the levels in use pass it over"
            remedy = f"remove it with alter --delete-config {key}, or the quota that goes before it"
            return finding_about(
                entity, Severity.WARNING, check="shadowed", sentence=f"nobody gets its {key}: {why}", remedy=remedy
            )
        case QuotaStatus.PARTLY:
            return finding_about(
                entity,
                Severity.NOTE,
                check="partly-shadowed",
                sentence=f"only clients without a client-id get its {key}: {before or 'another level'} goes before it",
                remedy="remove one of the two if that is not meant",
            )
        case _:
            keys = ", ".join(each.name for each in QUOTA_KEYS.values() if each.for_ip == (entity.ip is not ABSENT))
            return finding_about(
                entity,
                Severity.ERROR,
                check="ignored-key",
                sentence=f"brokers ignore {key} here: it is no quota of this kind of entity",
                remedy=f"remove it, and set a key that belongs here ({keys})",
            )


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
        yield finding_about(entity, Severity.WARNING, check=f"below-one-{what}", sentence=sentence, remedy=remedy)


def _above_capacity(entity: Entity, value: float, threads: int | None) -> Finding:
    count = threads or THREADS
    whose = "the broker with the fewest has" if threads else "by default a broker has"
    return finding_about(
        entity,
        Severity.WARNING if threads else Severity.NOTE,
        check="above-capacity",
        sentence=f"request_percentage is {format_number(value)}, more than all threads together: "
        f"{whose} {count}, which is {count * 100}%",
        remedy=f"set less than {count * 100}, or request_percentage=unlimited if no limit is meant",
    )


def _odd_names(entity: Entity) -> Iterator[Finding]:
    """Yield a finding for names that no client is likely to have."""
    for kind, name in entity.parts:
        trouble = None if name is None else _trouble_with(kind, name)
        if trouble is not None:
            sentence, remedy = f"the {kind} {name!r} {trouble[0]}", trouble[1]
            yield finding_about(entity, Severity.WARNING, check="odd-name", sentence=sentence, remedy=remedy)


def _trouble_with(kind: str, name: str) -> tuple[str, str] | None:
    """Return what is wrong with a name and how to fix it, None for a good name."""
    if name == "<default>":
        return "is a name that spells the default, not the default", f"if the default is meant: --{_flag(kind)}-default"
    if kind == USER and name.startswith("User:"):
        return "begins with 'User:', which brokers leave out of the name", f"use {name.removeprefix('User:')!r}"
    if name != name.strip():
        return "begins or ends with a blank", f"use {name.strip()!r} if the blank is not meant"
    if not name.isprintable():
        return "holds characters that can't be seen", "check how the name came here"
    return None


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
