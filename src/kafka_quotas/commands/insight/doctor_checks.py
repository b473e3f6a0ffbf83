"""Checks for odd quotas, by the stored quotas alone, and their findings."""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from kafka_quotas.commands.quotas.quota_status import QuotaStatus, StoredQuotaStatus, standings
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


def odd_entries(
    entries: Sequence[QuotaEntry], *, static: bool = False, threads: int | None = None
) -> Iterator[Finding]:
    """Yield the findings about quotas in the order of the checks.

    Thresholds are not quotas of Kafka, and were checked when they were set. `threads` are those of the smallest broker,
    None where unknown.
    """
    entries = [entry for entry in entries if not is_threshold_entity(entry.entity)]
    yield from _unreachable(entries, static=static)
    for entry in entries:
        for key, value in sorted(entry.quotas.items()):
            yield from _odd_value(entry.entity, key, value, threads)
        yield from _odd_names(entry.entity)
    yield from _similar_names(entries)
    yield from _same_addresses(entries)


def _unreachable(entries: Sequence[QuotaEntry], *, static: bool) -> Iterator[Finding]:
    for standing in standings(entries, static=static):
        if standing.stand is QuotaStatus.WINS:
            continue
        yield _standing_finding(standing)


def _standing_finding(standing: StoredQuotaStatus) -> Finding:
    key, entity, before = standing.key, standing.entity, standing.shadowed_by
    match standing.stand:
        case QuotaStatus.SHADOWED:
            why = f"{before} goes before it" if before else "the levels in use pass it over"
            return Finding(
                severity=Severity.WARNING,
                check="shadowed",
                about=str(entity),
                entity=entity,
                sentence=f"nobody gets its {key}: {why}",
                remedy=f"remove it with alter --delete-config {key}, or the quota that goes before it",
            )
        case QuotaStatus.PARTLY:
            return Finding(
                severity=Severity.NOTE,
                check="partly-shadowed",
                about=str(entity),
                entity=entity,
                sentence=f"only clients without a client-id get its {key}: {before or 'another level'} goes before it",
                remedy="remove one of the two if that is not meant",
            )
        case _:
            return Finding(
                severity=Severity.ERROR,
                check="ignored-key",
                about=str(entity),
                entity=entity,
                sentence=f"brokers ignore {key} here: it is no quota of this kind of entity",
                remedy=f"remove it, and set a key that belongs here ({', '.join(_keys_for(entity))})",
            )


def _keys_for(entity: Entity) -> list[str]:
    return [key.name for key in QUOTA_KEYS.values() if key.for_ip == (entity.ip is not ABSENT)]


def _odd_value(entity: Entity, key: str, value: float, threads: int | None) -> Iterator[Finding]:
    known = QUOTA_KEYS.get(key)
    if known is None:
        return
    bad = not math.isfinite(value) or value <= 0
    if bad or (known.value_type is not ValueType.DOUBLE and value != int(value)):
        yield Finding(
            severity=Severity.ERROR,
            check="invalid-value",
            about=str(entity),
            entity=entity,
            sentence=f"{key} is {format_number(value)}: "
            + ("it stops its clients or does nothing at all" if bad else "it must be a whole number")
            + ", and Kafka in KRaft mode refuses it",
            remedy=f"set a value above 0, or {key}=unlimited",
        )
        return
    if value >= known.unlimited:
        return
    yield from _small_value(entity, key, value)
    if known is REQUEST_PERCENTAGE and value > (threads or THREADS) * 100:
        yield _above_capacity(entity, value, threads)


def _small_value(entity: Entity, key: str, value: float) -> Iterator[Finding]:
    least = {PRODUCER_BYTE_RATE.name: (BATCH_BYTES, "batch"), CONSUMER_BYTE_RATE.name: (FETCH_BYTES, "fetch")}
    if key not in least or value >= least[key][0]:
        return
    size, what = least[key]
    of_batches = what == "batch"
    yield Finding(
        severity=Severity.WARNING,
        check=f"below-one-{what}",
        about=str(entity),
        entity=entity,
        sentence=f"{key} is {format_bytes(value)}/s, less than one {what} of {format_bytes(size)} per second: "
        + ("each one is followed by a wait" if of_batches else "a consumer may get nothing at all"),
        remedy="raise it, or lower batch.size of its clients"
        if of_batches
        else "raise it, or lower max.partition.fetch.bytes of its clients and max.message.bytes of its topics",
    )


def _above_capacity(entity: Entity, value: float, threads: int | None) -> Finding:
    count = threads or THREADS
    whose = "the broker with the fewest has" if threads else "by default a broker has"
    return Finding(
        severity=Severity.WARNING if threads else Severity.NOTE,
        check="above-capacity",
        about=str(entity),
        entity=entity,
        sentence=f"request_percentage is {format_number(value)}, more than all threads together: "
        f"{whose} {count}, which is {count * 100}%",
        remedy=f"set less than {count * 100}, or request_percentage=unlimited if no limit is meant",
    )


def _odd_names(entity: Entity) -> Iterator[Finding]:
    """Yield a finding for names that no client is likely to have."""
    for kind, name in entity.parts:
        if name is None:
            continue
        trouble = _trouble_with(kind, name)
        if trouble is not None:
            yield Finding(
                severity=Severity.WARNING,
                check="odd-name",
                about=str(entity),
                entity=entity,
                sentence=f"the {kind} {name!r} {trouble[0]}",
                remedy=trouble[1],
            )


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
