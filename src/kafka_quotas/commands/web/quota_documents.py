"""The documents of the page of quotas at one moment, whether a daemon or a store with brokers' metrics provides them.

The upper half says who is throttled, how close everybody is, and how the daemon is, the lower half which quotas are in
force, what applies to a client, and what changed. Each is made in slices of a few rows, and of no more than `MAX_ROWS`
buckets: those that are held back, then those that use most of their limit.
"""

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from kafka_quotas.commands.insight.usage import TopRow, UsageReading, top_row, why_there_are_none
from kafka_quotas.commands.insight.why import KeyAnswer, key_answer
from kafka_quotas.commands.quotas.quota_status import entry_statuses
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.groups.membership import ClientGroups
from kafka_quotas.core.model.entity import Entity, shown_name
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, REQUEST_RATE, is_threshold_entity
from kafka_quotas.core.model.quota_window import RecentThrottling
from kafka_quotas.core.model.value_format import (
    format_count,
    format_duration_ms,
    format_duration_s,
    format_limit,
    format_quota,
    format_rate,
    format_share,
)
from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.core.resolution.quota_resolver import GUARANTEED_USER, Bucket, bucket_of_tags, group_text
from kafka_quotas.core.resolution.usage import Usage, is_held_back, share_used, with_headroom
from kafka_quotas.enforcement import OTHERS, DaemonStatus, HourRow, status_facts
from kafka_quotas.stores import Journal, JournalEntry, QuotaEntry

Document: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReading:
    """Rates and throttling at one moment."""

    at_ms: int
    reading: UsageReading
    """The usage, empty where it can't be read."""
    status: DaemonStatus | None
    """The daemon's status, None where brokers' metrics are read, or nothing answers."""
    last_hour: tuple[HourRow, ...]
    sampled_from_ms: int | None
    """Since when this process itself looks for throttling, None where a daemon counts every throttle time."""
    trouble: KafkaQuotasError | None = None
    """Why the usage can't be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStore:
    """The quotas in force at one moment."""

    url: str
    entries: tuple[QuotaEntry, ...]
    resolver: EffectiveQuotas
    is_static: bool
    groups: GroupTree = field(default_factory=GroupTree)


_LONG_MS: Final = 120_000
_MOST_LETTERS: Final = 300
"""Longest name that a page gets: a client may call itself anything of up to 32 kB."""


def name_text(name: str) -> str:
    """Return a name as text for people, shortened where it is very long, an empty one as it is."""
    if not name:
        return ""
    return shortened(shown_name(name))


def shortened(text: str) -> str:
    """Return a text, such as that of an entity, without the rest of a very long name."""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}... ({len(text):,} letters)"


def _rate_text(key: str, rate: float) -> str:
    return format_rate(key, rate) if key in QUOTA_KEYS else f"{rate:.3g}/s"


def _limit_text(key: str, limit: float | None) -> str:
    if key in QUOTA_KEYS:
        return format_limit(key, limit)
    return "unlimited" if limit is None else f"{limit:g}/s"


def finite(value: float | None) -> float | None:
    """Return a figure that JSON can hold: None for one that is not a number or has no bound."""
    return value if value is not None and math.isfinite(value) else None


def duration_text(total_ms: float) -> str:
    """Return a length of time with at most three digits, from two minutes on in larger units."""
    if total_ms >= _LONG_MS:
        return format_duration_s(round(total_ms / 1000))
    return format_duration_ms(float(f"{total_ms:.3g}"))


def _minute_text(usage: Usage) -> str:
    recent: RecentThrottling | None = usage.last_minute
    if recent is None:
        return f"for {duration_text(usage.throttle_ms)}" if usage.throttle_ms else ""
    if not recent.times:
        return ""
    return f"{recent.times:,}x, {duration_text(recent.total_ms)}, {format_share(recent.share)} of the minute"


def _health_document(status: DaemonStatus) -> Document:
    return {
        "troubles": list(_troubles(status)),
        "facts": [{"label": label.capitalize(), "text": text} for label, text in status_facts(status)],
        "listeners": [
            {"broker": row.broker, "listen": row.listen, "upstream": row.upstream, "connections": row.connections}
            for row in status.listeners
        ],
    }


def _troubles(status: DaemonStatus) -> Iterator[str]:
    if status.draining:
        yield "the daemon drains: it takes no new connection and ends"
    if status.store.trouble:
        age = duration_text(status.store.age_ms)
        yield f"the store can't be read ({status.store.trouble}); its content of {age} ago stays in force"
    if status.fleet is not None and status.fleet.cut_off:
        yield f"cut off from the other daemons of its fleet; it allows {status.fleet.fallback}"
    dropped = status.counters.get("events_dropped", 0)
    if dropped:
        yield f"the event log has lost {format_count(dropped, 'charge', separator=',')}"


MAX_ROWS: Final = 200
_ROWS_IN_SLICE: Final = 20


def overview(live: LiveReading, store: LiveStore) -> Generator[None, None, Document]:
    """Return the document of one moment."""
    usages = live.reading.usages
    rows: list[TopRow] = []
    for slice_ in _sliced(_largest(usages)):
        rows += [top_row(usage, store.resolver) for usage in slice_]
        yield
    rows.sort(
        key=lambda row: (not row.held_back, -(row.share or 0.0), *row.usage.bucket, row.usage.key, row.usage.broker)
    )
    hour: list[Document] = []
    for hours in _sliced(live.last_hour):
        hour += [_hour_document(row, store) for row in hours]
        yield
    trouble = live.trouble
    return {
        "at_ms": live.at_ms,
        "origin": live.reading.origin,
        "store": store.url,
        "trouble": None if trouble is None else {"error": trouble.message, "hint": trouble.hint},
        "notes": [] if rows or trouble else why_there_are_none(store.entries),
        "waiting": [] if live.status is None else list(_waiting(live.status)),
        "counts_throttles": any(usage.last_minute is not None for usage in usages),
        "buckets": len(usages),
        "held": sum(row.held_back for row in rows),
        "rows": [_row_document(row) for row in rows[:MAX_ROWS]],
        "hour": hour,
        "sampled_from_ms": live.sampled_from_ms,
        "health": None if live.status is None else _health_document(live.status),
    }


def _sliced(rows: Iterable[object]) -> Iterator[list]:  # type: ignore[type-arg]
    iterator = iter(rows)
    while part := list(islice(iterator, _ROWS_IN_SLICE)):
        yield part


def _largest(usages: tuple[Usage, ...]) -> list[Usage]:
    if any(usage.limit is None for usage in usages):
        return list(usages)

    def rank(usage: Usage) -> tuple[bool, float]:
        return is_held_back(usage, usage.limit), share_used(usage.observed, usage.limit) or 0.0

    return sorted(usages, key=rank, reverse=True)[:MAX_ROWS]


def _whose(bucket: Bucket) -> Document:
    group = group_text(bucket)
    user, client_id = bucket if group is None else ("", "")
    return {
        "user": name_text(user),
        "client_id": client_id if bucket == OTHERS else name_text(client_id),
        "group": None if group is None else shortened(group),
        "guaranteed": bucket[0] == GUARANTEED_USER,
    }


def _row_document(row: TopRow) -> Document:
    usage = row.usage
    return {
        **_whose(usage.bucket),
        "quota": usage.key,
        "broker": usage.broker,
        "rate": _rate_text(usage.key, usage.observed),
        "limit": _limit_text(usage.key, row.limit),
        "share": finite(row.share),
        "held": row.held_back,
        "waiting": usage.is_waiting,
        "minute": _minute_text(usage),
        "entity": None if row.entity is None else shortened(str(row.entity)),
    }


def _hour_document(row: HourRow, store: LiveStore) -> Document:
    bucket = bucket_of_tags(row.user, row.client_id)
    usage = Usage(broker="", key=row.quota, user=bucket[0], client_id=bucket[1], observed=0.0)
    entity = None if bucket == OTHERS else top_row(usage, store.resolver).entity
    return {
        **_whose(bucket),
        "quota": row.quota,
        "entity": None if entity is None else shortened(str(entity)),
        "times": row.times,
        "total": duration_text(row.total_ms),
        "minutes_ms": list(row.minutes_ms),
    }


def _waiting(status: DaemonStatus) -> Iterator[Document]:
    for row in status.throttled[:MAX_ROWS]:
        yield {
            "user": name_text(row.user),
            "client_id": name_text(row.client_id),
            "quota": row.quota,
            "broker": row.broker,
            "entity": shortened(row.entity),
            "rate": _rate_text(row.quota, row.observed) + (" (estimated)" if row.estimated else ""),
            "limit": _limit_text(row.quota, row.limit),
            "connections": row.connections,
            "remaining": duration_text(row.remaining_ms),
        }


MAX_QUOTAS: Final = 200
"""Most quotas of one answer: who looks for others types a part of their name."""
MAX_CHANGES: Final = 20
MAX_STORES: Final = 3
MOST_ENTRIES: Final = 50
MOST_READ: Final = 1000
"""Most entries of a journal looked at, those of other stores included."""
_SLICE: Final = 500


def quotas_document(store: LiveStore, text: str) -> Generator[None, None, Document]:
    """Return the quotas of the entities and groups whose name has the text as a part, in any case."""
    wanted, found, count = text.strip().lower(), [], 0
    all_of_groups = list(_group_documents(store.groups))
    of_groups = [row for row in all_of_groups if wanted in str(row["entity"]).lower()]
    for number, entry in enumerate(store.entries):
        if wanted in str(entry.entity).lower():
            count += len(entry.quotas)
            found.append(entry)
        if number % _SLICE == _SLICE - 1:
            yield
    found.sort(key=lambda entry: entry.entity.sort_key)
    rows: list[Document] = of_groups[:MAX_QUOTAS]
    for entry in found:
        if len(rows) >= MAX_QUOTAS:
            break
        rows += _entry_documents(entry, store)
        yield
    return {
        "store": store.url,
        "total": sum(len(entry.quotas) for entry in store.entries) + len(all_of_groups),
        "found": count + len(of_groups),
        "quotas": rows[:MAX_QUOTAS],
    }


def _stored_document(entity: Entity, key: str, limit: str, status: str, by: Entity | None = None) -> Document:
    name, before = shortened(str(entity)), None if by is None else shortened(str(by))
    return {"entity": name, "quota": key, "limit": limit, "status": status, "by": before}


def _group_documents(groups: GroupTree) -> Iterator[Document]:
    for bound in groups.bounds():
        words = "guaranteed " if bound.mark == GUARANTEED_USER else ""
        yield _stored_document(bound.entity, bound.key, f"{words}{format_quota(bound.key, bound.rate)}", "group")


def _entry_documents(entry: QuotaEntry, store: LiveStore) -> list[Document]:
    entity, quotas = entry.entity, sorted(entry.quotas.items())
    if is_threshold_entity(entity):
        return [_stored_document(entity, key, format_quota(key, value), "threshold") for key, value in quotas]
    rate = entry.quotas.get(REQUEST_RATE.name)
    if rate is not None:  # brokers have no such key, so that it comes from the policy file of a daemon
        return [_stored_document(entity, REQUEST_RATE.name, _limit_text(REQUEST_RATE.name, rate), "policy file")]
    return [
        _stored_document(entity, each.key, format_quota(each.key, each.limit), each.status.value, each.shadowed_by)
        for each in entry_statuses(entry, store.resolver, static=store.is_static)
    ]


def effective_document(
    store: LiveStore, reading: UsageReading, groups: ClientGroups, *, user: str, client_id: str
) -> Document:
    """Return what applies to a client under each quota key, and what it uses of it."""
    answers = [key_answer(quota, reading) for quota in groups.beside(store.resolver.for_client(user, client_id))]
    return {
        "group": None if groups.group is None else shortened(groups.group),
        "user": name_text(user),
        "client_id": name_text(client_id),
        "answers": [_answer_document(answer) for answer in answers],
    }


def _answer_document(answer: KeyAnswer) -> Document:
    quota = answer.quota
    key = quota.key.name
    ends_at = None if answer.ends_at is None else with_headroom(answer.ends_at)
    return {
        "quota": key,
        "limit": _limit_text(key, answer.limit),
        "level": None if quota.level is None else str(quota.level),
        "entity": None if quota.entity is None else shortened(str(quota.entity)),
        "shared_with": quota.shared_with,
        "overridden": [
            {"entity": shortened(str(lost.entity)), "limit": _limit_text(key, lost.limit)} for lost in quota.overridden
        ],
        "warnings": list(quota.warnings),
        "usage": [
            {
                "broker": usage.broker,
                "rate": _rate_text(key, usage.observed),
                "share": finite(share_used(usage.observed, answer.limit)),
                "held": is_held_back(usage, answer.limit),
                "minute": _minute_text(usage),
            }
            for usage in answer.usages
        ],
        "ends_at": None if ends_at is None else _rate_text(key, ends_at),
    }


def changes_document(journal: Journal, store_url: str) -> Document:
    """Return the newest entries of the journal about the store, and which others recent entries are about."""
    found: list[JournalEntry] = []
    others: dict[str, None] = {}
    for entry in islice(journal.newest_first(), MOST_READ):
        if entry.store_url != store_url:
            others.setdefault(entry.store_url)
        elif len(found) < MOST_ENTRIES:
            found.append(entry)
    return {
        "journal": str(journal.path),
        "entries": [_journal_document(entry) for entry in found],
        "other_stores": list(others)[:MAX_STORES],
        "more_stores": max(0, len(others) - MAX_STORES),
    }


def _journal_document(entry: JournalEntry) -> Document:
    return {
        "id": entry.entry_id,
        "at_ms": entry.time_ms,
        "by": entry.user,
        "command": entry.command,
        "reason": entry.reason,
        "undo_at_ms": entry.undo_at_ms,
        "reverts": entry.reverts,
        "confirmed": entry.confirmed,
        "more": max(0, len(entry.changes) - MAX_CHANGES),
        "changes": [
            {
                "entity": shortened(str(change.entity)),
                "quota": change.key,
                "old": format_quota(change.key, change.old),
                "new": format_quota(change.key, change.new),
            }
            for change in entry.changes[:MAX_CHANGES]
        ],
    }
