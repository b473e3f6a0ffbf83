"""The documents of the page's lower half: quotas in force, the effective answer for a client, and changes."""

from collections.abc import Generator
from typing import Final

from kafka_quotas.commands.insight.usage_source import UsageReading
from kafka_quotas.commands.insight.why import KeyAnswer, key_answer
from kafka_quotas.commands.quotas.quota_status import StoredQuotaStatus, entry_statuses
from kafka_quotas.commands.web.figures import finite, limit_text, minute_text, name_text, rate_text, shortened
from kafka_quotas.commands.web.live_quotas import Document, JournalPage, LiveStore
from kafka_quotas.core.changes.journal_entry import JournalEntry
from kafka_quotas.core.model.quota_key import REQUEST_RATE
from kafka_quotas.core.model.threshold import is_threshold_entity
from kafka_quotas.core.model.value_format import format_quota
from kafka_quotas.core.resolution.usage import is_held_back, share_used, with_headroom
from kafka_quotas.stores.store import QuotaEntry

MAX_QUOTAS: Final = 200
"""Most quotas of one answer: who looks for others types a part of their name."""
MAX_CHANGES: Final = 20
"""Most changes shown of one entry of the journal."""
MAX_STORES: Final = 3
"""Most other stores of the journal that are named."""
_SLICE: Final = 500


def quotas_document(store: LiveStore, text: str) -> Generator[None, None, Document]:
    """Return the quotas of the entities whose name has the text as a part, in any case."""
    wanted, found, count = text.strip().lower(), [], 0
    for number, entry in enumerate(store.entries):
        if wanted in str(entry.entity).lower():
            count += len(entry.quotas)
            found.append(entry)
        if number % _SLICE == _SLICE - 1:
            yield
    found.sort(key=lambda entry: entry.entity.sort_key)
    rows: list[Document] = []
    for entry in found:
        if len(rows) >= MAX_QUOTAS:
            break
        rows += _entry_documents(entry, store)
        yield
    return {
        "store": store.url,
        "total": sum(len(entry.quotas) for entry in store.entries),
        "found": count,
        "quotas": rows[:MAX_QUOTAS],
    }


def _entry_documents(entry: QuotaEntry, store: LiveStore) -> list[Document]:
    entity = shortened(str(entry.entity))
    if is_threshold_entity(entry.entity):
        return [
            {"entity": entity, "quota": key, "limit": format_quota(key, value), "status": "threshold", "by": None}
            for key, value in sorted(entry.quotas.items())
        ]
    rate = entry.quotas.get(REQUEST_RATE.name)
    if rate is not None:  # brokers have no such key, so that it comes from the policy file of a daemon
        row: Document = {"entity": entity, "quota": REQUEST_RATE.name, "limit": limit_text(REQUEST_RATE.name, rate)}
        return [{**row, "status": "policy file", "by": None}]
    statuses = entry_statuses(entry, store.resolver, store.probes, static=store.is_static)
    return [_quota_document(entity, each) for each in statuses]


def _quota_document(entity: str, found: StoredQuotaStatus) -> Document:
    before = found.shadowed_by
    return {
        "entity": entity,
        "quota": found.key,
        "limit": format_quota(found.key, found.limit),
        "status": found.status.value,
        "by": None if before is None else shortened(str(before)),
    }


def effective_document(store: LiveStore, reading: UsageReading, *, user: str, client_id: str) -> Document:
    """Return what applies to a client under each quota key, and what it uses of it."""
    answers = [key_answer(quota, reading) for quota in store.resolver.for_client(user, client_id)]
    return {
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
        "limit": limit_text(key, answer.limit),
        "level": None if quota.level is None else str(quota.level),
        "entity": None if quota.entity is None else shortened(str(quota.entity)),
        "shared_with": quota.shared_with,
        "overridden": [
            {"entity": shortened(str(lost.entity)), "limit": limit_text(key, lost.limit)} for lost in quota.overridden
        ],
        "warnings": list(quota.warnings),
        "usage": [
            {
                "broker": usage.broker,
                "rate": rate_text(key, usage.observed),
                "share": finite(share_used(usage.observed, answer.limit)),
                "held": is_held_back(usage, answer.limit),
                "minute": minute_text(usage),
            }
            for usage in answer.usages
        ],
        "ends_at": None if ends_at is None else rate_text(key, ends_at),
    }


def changes_document(journal: JournalPage) -> Document:
    """Return the newest entries of the journal about the store."""
    return {
        "journal": journal.path,
        "entries": [_journal_document(entry) for entry in journal.entries],
        "other_stores": list(journal.other_stores[:MAX_STORES]),
        "more_stores": max(0, len(journal.other_stores) - MAX_STORES),
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
