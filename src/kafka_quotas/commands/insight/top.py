"""Who uses how much of which quota now."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from kafka_quotas.commands.insight.usage_source import UsageReading
from kafka_quotas.commands.quotas.quota_status import resolver_of
from kafka_quotas.core.described import Described, Limit, Sentences, StoreAddress
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.resolution.effective import OTHER, EffectiveQuota, EffectiveQuotas, SyntheticNames
from kafka_quotas.core.resolution.quota_resolver import Level
from kafka_quotas.core.resolution.usage import Usage, is_held_back, share_used
from kafka_quotas.stores.store import QuotaEntry, Store


class SortBy(StrEnum):
    """The sort key of the rows, whose figures sort in descending order."""

    SHARE = "share"
    RATE = "rate"
    LIMIT = "limit"
    THROTTLE = "throttle"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """A bucket at a broker, and the quota that applies to it."""

    DOCUMENT: ClassVar = (
        "user=usage.user usage.client_id usage.key limit level entity throttled=held_back usage.broker usage.observed "
        "share usage.throttle_ms usage.last_minute"
    )
    usage: Usage
    limit: Limit
    """By the store, or else by the source of the usage."""
    level: Level | None
    entity: Entity | None

    @property
    def share(self) -> Annotated[float | None, Described(text="of the limit; null without a limit")]:
        """The part of the limit that is used, 1 for all of it."""
        return share_used(self.usage.observed, self.limit)

    @property
    def held_back(self) -> bool:
        """Whether the bucket's clients are throttled."""
        return is_held_back(self.usage, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopResult:
    """The rows of one moment, how many more there are, and what to know where there are none."""

    DOCUMENT: ClassVar = "store=store_url source=origin rows left_out notes"
    store_url: StoreAddress
    origin: Annotated[str, Described(text="where the rates come from")]
    rows: tuple[TopRow, ...]
    left_out: int
    notes: Sentences


_FIGURES: Mapping[SortBy, Callable[[TopRow], float | None]] = {
    SortBy.SHARE: lambda row: row.share,
    SortBy.RATE: lambda row: row.usage.observed,
    SortBy.LIMIT: lambda row: row.limit,
    SortBy.THROTTLE: lambda row: row.usage.throttle_ms,
    SortBy.NAME: lambda _: None,
}


def top(store: Store, reading: UsageReading, *, sort: SortBy = SortBy.SHARE, limit: int | None = None) -> TopResult:
    """Return the rows of a reading, all or at most `limit`, with the quotas of the store."""
    entries = store.describe(EVERYTHING)
    resolver = resolver_of(entries, static=store.kind.is_static)
    other = SyntheticNames(entry.entity for entry in entries).text(OTHER)
    rows = sorted((top_row(usage, resolver, other) for usage in reading.usages), key=lambda row: _order(row, sort))
    kept = rows if limit is None else rows[:limit]
    return TopResult(
        store_url=store.url,
        origin=reading.origin,
        rows=tuple(kept),
        left_out=len(rows) - len(kept),
        notes=() if rows else tuple(why_there_are_none(entries)),
    )


def why_there_are_none(entries: Iterable[QuotaEntry]) -> list[str]:
    """Return why no bucket shows up and what to do about it, a line each.

    Brokers create these metrics only once a quota of that type existed, for any entity.

    Source:
        `ClientQuotaManager.quotasEnabled` (Kafka 4.0).
    """
    keys = [key.name for key in QUOTA_KEYS.values() if not key.for_ip]
    used = {name for entry in entries for name in entry.quotas}
    missing = [name for name in keys if name not in used]
    notes = ["no quota metrics: a broker has them for a client only after a quota of that type existed, for anybody"]
    if missing:
        configs = ",".join(f"{name}=unlimited" for name in missing)
        notes.append(
            f"nothing is stored for {', '.join(missing)}; a default without a limit harms nobody and starts them:"
        )
        notes.append(f"  kafka-quotas alter --user-default --add-config {configs}")
    if len(missing) < len(keys):
        stored = ", ".join(name for name in keys if name in used)
        notes.append(f"for {stored} there are quotas: either no client was busy lately, or --metric-names is needed")
    return notes


def top_row(usage: Usage, resolver: EffectiveQuotas, other: str) -> TopRow:
    """Return the row of a bucket, where `other` is a user that nothing is stored for."""
    quota = _quota_of(usage, resolver, other)
    if quota is None or quota.limit is None:
        return TopRow(usage=usage, limit=usage.limit, level=None, entity=None)
    limit = quota.limit if usage.limit is None else usage.limit
    return TopRow(usage=usage, limit=limit, level=quota.level, entity=quota.entity)


def _quota_of(usage: Usage, resolver: EffectiveQuotas, other: str) -> EffectiveQuota | None:
    """Return the quota of a bucket, None where a client of that name draws on another one."""
    for answer in resolver.for_client(usage.user or other, usage.client_id):
        if answer.key.name == usage.key and answer.bucket == usage.tags:
            return answer
    return None


def _order(row: TopRow, sort: SortBy) -> tuple[bool, float, str, str, str, str]:
    """Return the sort key of a row: figures in descending order, rows without one last, then by name."""
    usage, figure = row.usage, _FIGURES[sort](row)
    return (figure is None, -(figure or 0.0), usage.user, usage.client_id, usage.key, usage.broker)
