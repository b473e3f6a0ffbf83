"""The document of the page's upper half: who is throttled, how close everybody is, and the daemon's health.

It is made in slices of a few rows, and of no more than `MAX_ROWS` buckets: those that are held back, then those that
use most of their limit.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final

from kafka_quotas.commands.insight.top import TopRow, top_row, why_there_are_none
from kafka_quotas.commands.web.figures import (
    duration_text,
    finite,
    limit_text,
    minute_text,
    name_text,
    rate_text,
    shortened,
)
from kafka_quotas.commands.web.health import health_document
from kafka_quotas.commands.web.live_quotas import Document, LiveReading, LiveStore
from kafka_quotas.core.model.entity import desanitize
from kafka_quotas.core.resolution.effective import OTHER
from kafka_quotas.core.resolution.usage import Usage, is_held_back, share_used
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, HourRow
from kafka_quotas.enforcement.telemetry.throttle_stats import OTHERS

MAX_ROWS: Final = 200
"""Most rows of a table of the page."""
_SLICE: Final = 20


def overview(live: LiveReading, store: LiveStore) -> Generator[None, None, Document]:
    """Return the document of one moment."""
    usages = live.reading.usages
    rows: list[TopRow] = []
    other = store.probes.text(OTHER)
    for slice_ in _sliced(_largest(usages)):
        rows += [top_row(usage, store.resolver, other) for usage in slice_]
        yield
    rows.sort(key=_urgency)
    hour: list[Document] = []
    for hours in _sliced(live.last_hour):
        hour += [_hour_document(row, store, other) for row in hours]
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
        "health": None if live.status is None else health_document(live.status),
    }


def _sliced(rows: Iterable[object]) -> Iterator[list]:  # type: ignore[type-arg]
    iterator = iter(rows)
    while part := list(islice(iterator, _SLICE)):
        yield part


def _largest(usages: tuple[Usage, ...]) -> list[Usage]:
    """Return the largest usages, or all where some limits are still to be found in the store."""
    if any(usage.limit is None for usage in usages):
        return list(usages)

    def rank(usage: Usage) -> tuple[bool, float]:
        return is_held_back(usage, usage.limit), share_used(usage.observed, usage.limit) or 0.0

    return sorted(usages, key=rank, reverse=True)[:MAX_ROWS]


def _urgency(row: TopRow) -> tuple[bool, float, str, str, str, str]:
    usage = row.usage
    return (not row.held_back, -(row.share or 0.0), usage.user, usage.client_id, usage.key, usage.broker)


def _row_document(row: TopRow) -> Document:
    usage = row.usage
    return {
        "user": name_text(usage.user),
        "client_id": name_text(usage.client_id),
        "quota": usage.key,
        "broker": usage.broker,
        "rate": rate_text(usage.key, usage.observed),
        "limit": limit_text(usage.key, row.limit),
        "share": finite(row.share),
        "held": row.held_back,
        "waiting": usage.is_waiting,
        "minute": minute_text(usage),
        "entity": None if row.entity is None else shortened(str(row.entity)),
    }


def _hour_document(row: HourRow, store: LiveStore, other: str) -> Document:
    is_other = (row.user, row.client_id) == OTHERS
    user = desanitize(row.user)
    usage = Usage(broker="", key=row.quota, user=user, client_id=row.client_id, observed=0.0)
    entity = None if is_other else top_row(usage, store.resolver, other).entity
    return {
        "user": name_text(user),
        "client_id": row.client_id if is_other else name_text(row.client_id),
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
            "rate": rate_text(row.quota, row.observed) + (" (estimated)" if row.estimated else ""),
            "limit": limit_text(row.quota, row.limit),
            "connections": row.connections,
            "remaining": duration_text(row.remaining_ms),
        }
