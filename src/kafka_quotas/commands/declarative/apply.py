"""Bring a store to what files declare, or carry out a plan.

Contract: every entity is changed by one merged entry, so it is never without its quotas in between. What fails is
listed, the rest is done all the same; running again finishes the job, because what holds already is no change.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

from kafka_quotas.commands.declarative.plan import (
    DEFAULT_PRUNE_LIMIT,
    DeclaredPlan,
    DesiredState,
    LeftAlone,
    NotOwned,
    check_removals,
    declared_plan,
    refused_changes,
)
from kafka_quotas.core.changes.blast_radius import BlastRadius, blast_radius
from kafka_quotas.core.changes.plan import Content, KeptPlan, Plan, PlannedChange
from kafka_quotas.core.described import Described, StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, NotVisibleError, StoreUnreachableError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.store import Alteration, AlterationResult, Store, alterations_of, content_of, errors_of

FIRST_CHUNK: Final = 100
"""The number of entities that go to the store at first; later chunks are as large as it does in `CHUNK_S`."""
CHUNK_S: Final = 3.0
MOST_GROWTH: Final = 10
"""Each chunk costs a Kafka store one more look at everything, so chunks grow soon."""

Progress = Callable[[int, int], None]
"""Called with how many entities are done, of how many."""
Made = Callable[[Sequence[PlannedChange], Mapping[Entity, KafkaQuotasError]], object]
"""Called with the changes of each chunk and what failed, so that an interruption loses nothing of what was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An entity that could not be changed, and why."""

    DOCUMENT: ClassVar = "entity error=error.message hint=error.hint"
    entity: Entity
    error: KafkaQuotasError


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """The changes made, or with `dry_run` planned, the failures, and the affected clients.

    A change that the store accepted but did not show in time is among both the changes and the failures.
    """

    DOCUMENT: ClassVar = (
        "store=store_url dry_run changes=made failures affected=radius.affected left_alone=unmanaged not_owned"
    )
    store_url: StoreAddress
    made: Annotated[tuple[PlannedChange, ...], Described(text="with --dry-run those to be made")]
    failures: tuple[Failure, ...]
    declared: DeclaredPlan | None
    """None where a plan was carried out."""
    radius: Annotated[BlastRadius | None, Described(text="null without --dry-run")]
    dry_run: bool

    @property
    def unmanaged(self) -> LeftAlone:
        """The quotas that are stored and not declared, which stay."""
        return () if self.declared is None else self.declared.unmanaged

    @property
    def not_owned(self) -> NotOwned:
        """The entities that are declared and left out by --selector."""
        return () if self.declared is None else self.declared.not_owned


def apply(
    store: Store,
    desired_state: DesiredState,
    *,
    dry_run: bool = False,
    allow_invalid: bool = False,
    keep: Collection[tuple[Entity, str]] = (),
    progress: Progress = lambda *_: None,
    made: Made = lambda *_: None,
) -> ApplyResult:
    """Change the store to match the files, and return what changed.

    A dry run checks everything and writes nothing. Quotas in `keep` stay as they are, and `made` is called with the
    outcome of each chunk.

    Raises:
        UsageError: An entry says `invalid: true` without `allow_invalid`, or as `declared_plan` does.
        KafkaQuotasError: As `declared_plan` does, or the store fails before anything was written.
    """
    found = declared_plan(store, desired_state, keep=keep)
    if not allow_invalid:
        _refuse_invalid(found.invalid)
    result = _carried_out(store, found.plan, found.stored, dry_run=dry_run, progress=progress, made=made)
    return replace(result, declared=found)


def apply_plan(
    store: Store,
    kept: KeptPlan,
    *,
    dry_run: bool = False,
    allow_invalid: bool = False,
    prune_limit: float = DEFAULT_PRUNE_LIMIT,
    progress: Progress = lambda *_: None,
    made: Made = lambda *_: None,
) -> ApplyResult:
    """Carry out a plan, or what is left of it, and return what changed.

    Raises:
        StalePlanError: The store has changed since the plan was made.
        UsageError: The plan is of another store, or has refused values.
        KafkaQuotasError: It removes too much, or the store fails before anything was written.
    """
    if kept.store_url != store.url:
        raise UsageError(
            f"the plan was made for {kept.store_url}, not for {store.url}", hint=f"--store {kept.store_url}"
        )
    stored = content_of(store)
    plan = kept.plan.left_to_do(stored)
    check_removals(plan, stored, prune_limit)
    if not allow_invalid:
        _refuse_invalid(refused_changes(plan))
    return _carried_out(store, plan, stored, dry_run=dry_run, progress=progress, made=made)


def _refuse_invalid(entities: Sequence[Entity]) -> None:
    if entities:
        others = f" and {len(entities) - 1} more" if len(entities) > 1 else ""
        raise UsageError(
            f"marked invalid or refused: {entities[0]}{others}",
            hint="correct the values, or add --allow-invalid for a store that accepts them",
        )


def _carried_out(
    store: Store, plan: Plan, stored: Content, *, dry_run: bool, progress: Progress, made: Made
) -> ApplyResult:
    alterations = alterations_of(plan.changes)

    def recorded(results: Sequence[AlterationResult]) -> None:
        if not dry_run:
            entities = {each.entity for each in results}
            made([change for change in plan.changes if change.entity in entities], errors_of(results))

    failures = tuple(_failures(store, alterations, validate_only=dry_run, progress=progress, record=recorded))
    failed = {failure.entity for failure in failures if not isinstance(failure.error, NotVisibleError)}
    return ApplyResult(
        store_url=store.url,
        made=tuple(change for change in plan.changes if change.entity not in failed),
        failures=failures,
        declared=None,
        radius=blast_radius(stored, plan) if dry_run else None,
        dry_run=dry_run,
    )


def _failures(
    store: Store,
    alterations: Sequence[Alteration],
    *,
    validate_only: bool,
    progress: Progress,
    record: Callable[[Sequence[AlterationResult]], None],
) -> Iterator[Failure]:
    """Write the changes and yield those that failed, or are not tried once the store is lost."""
    done, size = 0, FIRST_CHUNK
    while done < len(alterations):
        chunk = alterations[done : done + size]
        begin_s = time.monotonic()
        try:
            results = store.alter(chunk, validate_only=validate_only)
        except KafkaQuotasError as error:
            if done == 0:
                raise
            yield from _not_tried(alterations[done:], error)
            return
        record(results)
        yield from (Failure(entity=each.entity, error=each.error) for each in results if each.error is not None)
        done += len(chunk)
        progress(done, len(alterations))
        lost = next((each.error for each in results if _is_lost(each.error)), None)
        if lost is not None:
            yield from _not_tried(alterations[done:], lost)
            return
        size = _next_size(size, time.monotonic() - begin_s)


def _not_tried(alterations: Sequence[Alteration], error: KafkaQuotasError) -> Iterator[Failure]:
    return (Failure(entity=each.entity, error=error) for each in alterations)


def _next_size(size: int, took_s: float) -> int:
    """Return how many entities the store changes in `CHUNK_S`, and never less than the first chunk."""
    growth = min(MOST_GROWTH, CHUNK_S / max(took_s, 1e-9))
    return max(FIRST_CHUNK, int(size * growth))


def _is_lost(error: KafkaQuotasError | None) -> bool:
    """Return whether the store is lost, so that further changes are useless."""
    return isinstance(error, StoreUnreachableError) and not isinstance(error, NotVisibleError)
