"""Copy all quotas of one store into another, and compare the two afterwards.

Contract: what the other side holds besides stays. An entity of which one quota is refused gets the others. Success is
what is found in the target when it is read again, never what was sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, ClassVar

from kafka_quotas import stores
from kafka_quotas.commands.quotas.alter import Made, Progress, alter_many
from kafka_quotas.core.changes.plan import (
    Content,
    PlannedChange,
    applied,
    plan_changes,
    quotas_in,
    same_value,
)
from kafka_quotas.core.described import Described, QuotaValue, Sentences, StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.value_format import format_count

Refusals = Mapping[tuple[Entity, str], KafkaQuotasError]


class MigrationOutcome(StrEnum):
    """The outcome of a quota's migration."""

    MIGRATED = "migrated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    DIFFERENT = "different"
    ONLY_THERE = "only there"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedQuota:
    """A quota and the outcome of its migration."""

    DOCUMENT: ClassVar = "entity key from=source to=target outcome reason=error.message"
    entity: Annotated[Entity, Described(prefix="")]
    key: str
    source: QuotaValue
    target: QuotaValue
    """Its value in the target afterwards."""
    outcome: MigrationOutcome
    error: KafkaQuotasError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much a store holds."""

    entities: int
    quotas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """Every quota of both sides, sorted, with counts, which are the expected ones with `dry_run`."""

    DOCUMENT: ClassVar = (
        "from.store=source_url from.entities=source.entities from.quotas=source.quotas to.store=target_url "
        "to.before=target_before to.after=target_after dry_run complete warnings quotas"
    )
    source_url: StoreAddress
    target_url: StoreAddress
    quotas: tuple[MigratedQuota, ...]
    source: Counts
    target_before: Counts
    target_after: Counts
    dry_run: bool
    warnings: Sentences = ()
    """What the target can't express of the source."""

    @property
    def complete(self) -> bool:
        """Whether the target holds everything that the source does."""
        return not any(quota.outcome in (MigrationOutcome.REFUSED, MigrationOutcome.DIFFERENT) for quota in self.quotas)


def migrate(
    source: stores.Store,
    target: stores.Store,
    *,
    dry_run: bool = False,
    recorder: stores.JournalWriter | None = None,
    progress: Progress = lambda *_: None,
) -> MigrationResult:
    """Copy every quota of `source` to `target`, or with `dry_run` check them, and return each outcome.

    Raises:
        UsageError: Both are the same store.
        StoreError: A store failed before anything was written.
    """
    if source.url == target.url:
        raise UsageError(f"both sides are the same store: {source.url}", hint="--from one store --to another")
    wanted, before = stores.content_of(source), stores.content_of(target)
    changes, refusals = _accepted(target, plan_changes(before, wanted).changes)
    if dry_run:
        after: Content = applied(before, changes)
    else:
        made: Made = (lambda *_: None) if recorder is None else partial(recorder.record_outcomes, target.url)
        failed = alter_many(target, changes, validate_only=False, progress=progress, made=made)
        lost = {(each.entity, each.key): failed[each.entity] for each in changes if each.entity in failed}
        refusals = {**refusals, **lost}
        after = stores.content_of(target)
    return MigrationResult(
        source_url=source.url,
        target_url=target.url,
        quotas=tuple(_compared(wanted, before, after, refusals)),
        source=_counts(wanted),
        target_before=_counts(before),
        target_after=_counts(after),
        dry_run=dry_run,
        warnings=tuple(_not_copied(source, wanted)),
    )


def _not_copied(source: stores.Store, wanted: Content) -> Iterator[str]:
    """Yield what static quotas mean and stored ones don't, and that groups stay behind.

    **Source:** KIP-13's defaults hold for clients without a client-id too; `ClientQuotaManager`, Kafka 4.3, looks for a
    default client-id (level 8) only where a client sends one.
    """
    defaults = wanted.get(Entity.of(client_id=None), {})
    if source.kind.is_static and defaults:
        yield (
            f"clients without a client-id have {' and '.join(sorted(defaults))} by the static default, and nothing by "
            "the default client-id that it becomes: only a quota of their user, or of the default user, limits them"
        )
    groups = source.groups()
    if groups:
        count = format_count(len(groups), "group")
        yield f"{count} not copied, {groups[0].name} for example: export and apply take groups along"


def _counts(content: Content) -> Counts:
    return Counts(entities=len(content), quotas=sum(map(len, content.values())))


def _accepted(
    target: stores.Store, changes: Sequence[PlannedChange]
) -> tuple[tuple[PlannedChange, ...], dict[tuple[Entity, str], KafkaQuotasError]]:
    refused = _refused(target, changes)
    doubtful: dict[Entity, list[PlannedChange]] = {}
    for change in changes:
        if change.entity in refused:
            doubtful.setdefault(change.entity, []).append(change)
    # A store reports only the first problem of an entity. Checked one quota at a time, it reports each.
    refusals: dict[tuple[Entity, str], KafkaQuotasError] = {}
    for turn in range(max((len(quotas) for quotas in doubtful.values()), default=0)):
        asked = [quotas[turn] for quotas in doubtful.values() if turn < len(quotas)]
        found = _refused(target, asked)
        refusals |= {(change.entity, change.key): found[change.entity] for change in asked if change.entity in found}
    return tuple(change for change in changes if (change.entity, change.key) not in refusals), refusals


def _refused(target: stores.Store, changes: Sequence[PlannedChange]) -> dict[Entity, KafkaQuotasError]:
    if not changes:
        return {}
    return stores.errors_of(target.alter(stores.alterations_of(changes), validate_only=True))


def _compared(wanted: Content, before: Content, after: Content, refusals: Refusals) -> Iterator[MigratedQuota]:
    for entity, key in quotas_in(wanted, after):
        source, target = wanted.get(entity, {}).get(key), after.get(entity, {}).get(key)
        error = refusals.get((entity, key))
        if source is None:
            outcome = MigrationOutcome.ONLY_THERE
        elif same_value(source, target):
            same = same_value(source, before.get(entity, {}).get(key))
            outcome, error = (MigrationOutcome.UNCHANGED if same else MigrationOutcome.MIGRATED), None
        else:
            outcome = MigrationOutcome.DIFFERENT if error is None else MigrationOutcome.REFUSED
        yield MigratedQuota(entity=entity, key=key, source=source, target=target, outcome=outcome, error=error)
