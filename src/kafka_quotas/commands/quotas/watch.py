"""Changes of a store as they happen, made by any client."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self

from kafka_quotas.core.changes.plan import Content, PlannedChange, differences
from kafka_quotas.core.clock import Clock, format_instant
from kafka_quotas.core.described import Described, Instant, StoreAddress
from kafka_quotas.core.errors import StoreUnreachableError
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.groups.group_changes import GroupChange, group_changes
from kafka_quotas.core.model.entity import EVERYTHING, Entity, QuotaFilter, filter_verdict_local, matches
from kafka_quotas.stores import Store

RETRY_S: Final = 2.0
"""The pause before a store that was lost is asked again."""
LONGEST_WAIT_S: Final = 3600.0
"""An unbounded watch asks the store again after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyChange:
    """A quota or a part of a group before and after."""

    entity: Annotated[Entity, Described(prefix="")]
    key: Annotated[str, Described(text="of a group also guaranteed.KEY, member, order, or group for all of it")]
    old: Annotated[float | str | None, Described(text="in the unit of the key, or a text; null where it is not set")]
    new: Annotated[float | str | None, Described(text="in the unit of the key, or a text; null where it is not set")]

    @classmethod
    def of(cls, change: PlannedChange | GroupChange, **more: Any) -> Self:
        """Return a change of this class, with the values of its own fields."""
        return cls(entity=change.entity, key=change.key, old=change.old, new=change.new, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenChange(AnyChange):
    """A change that was found, and when it was (milliseconds since the epoch)."""

    DOCUMENT: ClassVar = "time store=store_url entity key old new"
    time_ms: int
    store_url: StoreAddress

    @property
    def time(self) -> Instant:
        """The time as text."""
        return format_instant(self.time_ms)


def watch(
    store: Store,
    *,
    count: int | None = None,
    duration_s: float | None = None,
    clock: Clock,
    monotonic_s: Callable[[], float],
    pause: Callable[[float], None],
    began: Callable[[int], None],
    lost: Callable[[StoreUnreachableError], None],
    quota_filter: QuotaFilter = EVERYTHING,
) -> Iterator[SeenChange]:
    """Yield the changes to entities that pass the filter, and without any to groups, as they are seen.

    It ends after `count` of them or after `duration_s` seconds.

    Several changes between two looks count as one. `began` is called once with the number of such entities, `lost` when
    a store is lost later on. After the pause the next look finds the changes made meanwhile.
    """
    refusal = filter_verdict_local(quota_filter)
    if refusal is not None:
        raise refusal
    deadline_s = None if duration_s is None else monotonic_s() + duration_s
    revision: str | None = None
    content: Content | None = None
    groups: tuple[Group, ...] = ()
    seen = 0
    while seen != count and (left_s := (float("inf") if deadline_s is None else deadline_s - monotonic_s())) > 0:
        try:
            snapshot = store.watch(revision, timeout_s=min(left_s, LONGEST_WAIT_S))
        except StoreUnreachableError as error:
            if content is None:
                raise
            lost(error)
            pause(min(RETRY_S, left_s))
            continue
        if snapshot is None:
            continue
        before, groups_before, revision, groups = content, groups, snapshot.revision, snapshot.groups
        content = {entity: quotas for entity, quotas in snapshot.entries if matches(quota_filter, entity)}
        if before is None:
            began(len(content))
            continue
        changes: list[PlannedChange | GroupChange] = [*differences(before, content)]
        if quota_filter == EVERYTHING:
            changes += group_changes(groups_before, groups)
        for change in changes:
            yield SeenChange.of(change, time_ms=clock.now_ms(), store_url=store.url)
            seen += 1
            if seen == count:
                return
