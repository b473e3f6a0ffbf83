"""Bring a store to what files declare: the plan, what it leaves alone and whom it affects, and the way back by export.

Contract: what the selectors do not name is neither changed nor removed, declared or not. Removals beyond `prune_limit`
per cent of the entities or of the quotas stored among what is owned are refused, and so is an empty input. Every entity
is changed by one merged entry, so it is never without its quotas in between. What fails is listed, the rest is done all
the same, and running again finishes the job, because what is as declared is no change.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final

from kafka_quotas.commands.declarative.groups import GroupPlace, GroupPlan, refuse_removal
from kafka_quotas.commands.declarative.reading import declared, files_of, read_declarations
from kafka_quotas.commands.quotas.alter import Made, Progress, alter_many
from kafka_quotas.core.changes.blast_radius import BlastRadius, blast_radius
from kafka_quotas.core.changes.plan import (
    Content,
    KeptPlan,
    Plan,
    PlannedChange,
    Unmanaged,
    applied,
    new_values,
    plan_changes,
    planned,
    unmanaged_in,
)
from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.described import Described, StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, NotVisibleError, UsageError
from kafka_quotas.core.formats.nodes import Diagnostic, SourceLocation
from kafka_quotas.core.groups.group import Group
from kafka_quotas.core.groups.group_changes import GroupChange
from kafka_quotas.core.model.entity import EVERYTHING, Entity, owner
from kafka_quotas.stores import JournalWriter, QuotaEntry, Store, content_of

DEFAULT_PRUNE_LIMIT: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """The declared state: files with values laid over them, and what they own."""

    paths: Sequence[str]
    values: Sequence[Path] = ()
    selectors: Sequence[str] = ()
    """Name the entities that the files own."""
    prune: bool = False
    prune_limit: float = DEFAULT_PRUNE_LIMIT
    policy: Path | None = None
    """A daemon's policy file that has the groups, None: the store has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPlan:
    """A plan, what was stored when it was made, and what it leaves alone."""

    plan: Plan
    stored: Content
    groups: GroupPlan
    unmanaged: Annotated[tuple[Unmanaged, ...], Described(text="what is stored and not declared, which stays")] = ()
    not_owned: Annotated[tuple[Entity, ...], Described(text="what is declared and left out by --selector")] = ()
    invalid: Sequence[Entity] = ()
    """Changed entities whose new quotas this program refuses."""
    unused_values: tuple[str, ...] = ()
    left_out: tuple[Diagnostic, ...] = ()
    """What files of other tools have that Kafka has no quota for."""


def declared_plan(
    stored_content: Callable[[], Content],
    desired_state: DesiredState,
    *,
    place: GroupPlace,
    keep: Collection[tuple[Entity, str]] = (),
) -> DeclaredPlan:
    """Return what has to change in a store for the files to hold, but for the quotas to `keep`.

    The content of the store is asked for once the files were read.

    Raises:
        UsageError: The files or a selector have a problem.
        KafkaQuotasError: The plan would remove too much.
    """
    owns = owner(desired_state.selectors)
    found = declared(desired_state.paths, desired_state.values)
    desired = found.desired()
    not_owned = tuple(entity for entity in desired if not owns(entity))
    if not any(owns(entity) for entity in (*desired, *(group.entity for group in found.groups))):
        raise UsageError(
            f"--selector {' '.join(desired_state.selectors)} names no declared entity", hint="is it the right file?"
        )
    limit, prune = desired_state.prune_limit, desired_state.prune
    groups = place.plan(found.groups, prune=prune, prune_limit=limit, owns=owns)
    stored = stored_content()
    plan = plan_changes(stored, desired, prune=prune, owns=owns)
    if keep:
        plan = planned(stored, [change for change in plan.changes if (change.entity, change.key) not in keep])
    check_removals(plan, {entity: stored[entity] for entity in stored if owns(entity)}, limit)
    left = () if prune else unmanaged_in(stored, desired, owns=owns)
    return DeclaredPlan(
        plan=plan,
        stored=stored,
        unmanaged=left,
        not_owned=not_owned,
        invalid=tuple(entry.entity for entry in found.entries if entry.invalid and owns(entry.entity)),
        unused_values=found.unused_values,
        left_out=found.left_out,
        groups=groups,
    )


def check_removals(plan: Plan, owned: Content, limit_percent: float) -> None:
    """Raise a `KafkaQuotasError` for a plan that removes more than its share of what is owned."""
    after = applied(owned, plan.changes)
    gone = sum(entity not in after for entity in owned)
    quotas = sum(len(each) for each in owned.values())
    removed = sum(change.new is None for change in plan.changes)
    refuse_removal(gone, len(owned), "stored entities", limit_percent=limit_percent)
    refuse_removal(removed, quotas, "stored quotas", limit_percent=limit_percent)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffResult:
    """The plan with what it leaves alone, and the clients to whom something else applies afterwards."""

    DOCUMENT: ClassVar = (
        "store=store_url changes=declared.plan.changes affected=radius.affected "
        "combinations_left_out=radius.combinations_left_out left_alone=declared.unmanaged "
        "not_owned=declared.not_owned groups=declared.groups.shown"
    )
    store_url: StoreAddress
    declared: DeclaredPlan
    radius: BlastRadius

    @property
    def changes(self) -> tuple[PlannedChange | GroupChange, ...]:
        """What has to change, groups last."""
        return (*self.declared.plan.changes, *self.declared.groups.changes)


def diff(store: Store, desired_state: DesiredState) -> DiffResult:
    """Return what has to change for the files to hold, and for whom, with the errors of `declared_plan`."""
    found = declared_plan(partial(content_of, store), desired_state, place=GroupPlace(store, desired_state.policy))
    found = replace(found, groups=found.groups.with_moved(found.stored))
    return DiffResult(store_url=store.url, declared=found, radius=blast_radius(found.stored, found.plan))


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
        "store=store_url dry_run changes=made failures affected=radius.affected left_alone=declared.unmanaged "
        "not_owned=declared.not_owned groups=declared.groups.shown"
    )
    store_url: StoreAddress
    made: Annotated[tuple[PlannedChange, ...], Described(text="with --dry-run those to be made")]
    failures: tuple[Failure, ...]
    declared: DeclaredPlan
    radius: Annotated[BlastRadius | None, Described(text="null without --dry-run")]
    dry_run: bool

    @property
    def changes(self) -> tuple[PlannedChange | GroupChange, ...]:
        """What was changed, or with `dry_run` would be, groups last."""
        return (*self.made, *self.declared.groups.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToApply:
    """How a plan is carried out."""

    dry_run: bool = False
    """Whether to check everything and write nothing."""
    allow_invalid: bool = False
    """Whether entries may hold what this program refuses."""
    progress: Progress = lambda *_: None
    recorder: JournalWriter | None = None
    """Records the outcome of each chunk, and the groups that have changed."""


_AT_ONCE: Final = HowToApply()


def apply(
    store: Store,
    desired_state: DesiredState,
    how: HowToApply = _AT_ONCE,
    *,
    keep: Collection[tuple[Entity, str]] = (),
) -> ApplyResult:
    """Change the store to match the files but for the quotas to `keep`, and return what changed.

    Raises:
        UsageError: An entry says `invalid: true` without `allow_invalid`, or as `declared_plan` does.
        KafkaQuotasError: As `declared_plan` does, or the store fails before anything was written.
    """
    place = GroupPlace(store, desired_state.policy)
    found = declared_plan(partial(content_of, store), desired_state, place=place, keep=keep)
    return _carried_out(store, place, found, how)


def apply_plan(
    store: Store,
    kept: KeptPlan,
    how: HowToApply = _AT_ONCE,
    *,
    prune_limit: float = DEFAULT_PRUNE_LIMIT,
    policy: Path | None = None,
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
    place = GroupPlace(store, policy)
    groups, stored = place.left_of(kept.groups), content_of(store)
    plan = kept.plan.left_to_do(stored)
    check_removals(plan, stored, prune_limit)
    refused = [
        entity
        for entity, quotas in new_values(plan.changes).items()
        if our_refusals(entity, {key: new for key, new in quotas.items() if new is not None}) is not None
    ]
    return _carried_out(store, place, DeclaredPlan(plan=plan, stored=stored, groups=groups, invalid=refused), how)


def _carried_out(store: Store, place: GroupPlace, declared: DeclaredPlan, how: HowToApply) -> ApplyResult:
    """Carry out a plan, and before it that of the groups, which fails as a whole."""
    plan, groups, refused, dry_run = declared.plan, declared.groups, declared.invalid, how.dry_run
    if refused and not how.allow_invalid:
        others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise UsageError(
            f"marked invalid or refused: {refused[0]}{others}",
            hint="correct the values, or add --allow-invalid for a store that accepts them",
        )
    recorder = how.recorder
    made: Made = (lambda *_: None) if recorder is None else partial(recorder.record_outcomes, store.url)
    if dry_run:
        declared = replace(declared, groups=groups.with_moved(declared.stored))
    elif groups.changes:
        place.put(groups)
        if recorder is not None:
            recorder.record(store.url, (), groups=groups.changed, undo_groups=groups.undo())
    errors = alter_many(store, plan.changes, validate_only=dry_run, progress=how.progress, made=made)
    failed = {entity for entity, error in errors.items() if not isinstance(error, NotVisibleError)}
    return ApplyResult(
        store_url=store.url,
        made=tuple(change for change in plan.changes if change.entity not in failed),
        failures=tuple(Failure(entity=entity, error=error) for entity, error in errors.items()),
        declared=declared,
        radius=blast_radius(declared.stored, plan) if dry_run else None,
        dry_run=dry_run,
    )


def export(
    store: Store, *, selectors: Sequence[str] = (), policy: Path | None = None
) -> tuple[list[QuotaEntry], list[Group]]:
    """Return the stored quotas and the groups that the selectors name, quotas sorted by entity."""
    owns = owner(selectors)
    groups = GroupPlace(store, policy).read()
    entries = [entry for entry in store.describe(EVERYTHING) if owns(entry.entity)]
    return entries, [group for group in groups if owns(group.entity)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    """What was checked, and every problem with it."""

    DOCUMENT: ClassVar = "files entities groups invalid_entries problems"
    files: int
    entities: int
    groups: int
    invalid_entries: Annotated[int, Described(text="entries marked invalid")]
    problems: tuple[Diagnostic, ...]
    unused_values: tuple[str, ...]
    left_out: tuple[Diagnostic, ...]


def validate(paths: Sequence[str], *, values: Sequence[Path] = ()) -> ValidateResult:
    """Return every problem of the files with the values laid over them."""
    found = read_declarations(paths, values)
    problems = found.problems
    if not problems and not found.entries and not found.groups:
        problems = (
            Diagnostic(
                location=SourceLocation(source=", ".join(paths)),
                message="no quotas are declared",
                hint="is it the right file?",
            ),
        )
    return ValidateResult(
        files=len(files_of(paths)),
        entities=len(found.entries),
        groups=len(found.groups),
        invalid_entries=sum(entry.invalid for entry in found.entries),
        problems=problems,
        unused_values=found.unused_values,
        left_out=found.left_out,
    )
