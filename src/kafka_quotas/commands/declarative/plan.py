"""The plan that brings a store to what files declare, what it leaves alone, and whom it affects.

Contract: what the selectors do not name is neither changed nor removed, declared or not. Removals beyond `prune_limit`
per cent of the entities or of the quotas stored among what is owned are refused, and so is an empty input.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

from kafka_quotas.commands.declarative.reading import declared
from kafka_quotas.core.changes.blast_radius import BlastRadius, blast_radius
from kafka_quotas.core.changes.plan import Content, KeptPlan, Plan, Unmanaged, plan_changes, planned, unmanaged_in
from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.described import Described, StoreAddress
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import owner
from kafka_quotas.stores.store import Store, alterations_of, content_of

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
    """The greatest share of removals, in per cent."""


LeftAlone = Annotated[tuple[Unmanaged, ...], Described(text="what is stored and not declared, which stays")]
NotOwned = Annotated[tuple[Entity, ...], Described(text="what is declared and left out by --selector")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPlan:
    """The plan, what was stored when it was made, and what it leaves alone."""

    plan: Plan
    stored: Content
    unmanaged: LeftAlone
    not_owned: NotOwned
    invalid: tuple[Entity, ...]
    """Changed entities whose new quotas this program refuses."""
    unused_values: tuple[str, ...]
    """Values that no entry asks for."""


def declared_plan(
    store: Store, desired_state: DesiredState, *, keep: Collection[tuple[Entity, str]] = ()
) -> DeclaredPlan:
    """Return what has to change in the store for the files to hold, but for the quotas to `keep`.

    Raises:
        UsageError: The files or a selector have a problem.
        KafkaQuotasError: The plan would remove too much.
    """
    owns = owner(desired_state.selectors)
    found = declared(desired_state.paths, desired_state.values)
    desired = found.desired()
    not_owned = tuple(entity for entity in desired if not owns(entity))
    if len(not_owned) == len(desired):
        raise UsageError(
            f"--selector {' '.join(desired_state.selectors)} names no declared entity", hint="is it the right file?"
        )
    stored = content_of(store)
    plan = plan_changes(stored, desired, prune=desired_state.prune, owns=owns)
    if keep:
        plan = planned(stored, [change for change in plan.changes if (change.entity, change.key) not in keep])
    check_removals(plan, {entity: stored[entity] for entity in stored if owns(entity)}, desired_state.prune_limit)
    left = () if desired_state.prune else unmanaged_in(stored, desired, owns=owns)
    return DeclaredPlan(
        plan=plan,
        stored=stored,
        unmanaged=left,
        not_owned=not_owned,
        invalid=tuple(entry.entity for entry in found.entries if entry.invalid and owns(entry.entity)),
        unused_values=found.unused_values,
    )


def check_removals(plan: Plan, owned: Content, limit_percent: float) -> None:
    """Raise a `KafkaQuotasError` for a plan that removes more than its share of what is owned."""
    after = plan.applied_to(owned)
    gone = sum(entity not in after for entity in owned)
    quotas = sum(len(each) for each in owned.values())
    removed = sum(change.is_removal for change in plan.changes)
    for count, total, what in ((gone, len(owned), "entities"), (removed, quotas, "quotas")):
        if count * 100 > total * limit_percent:
            raise KafkaQuotasError(
                f"this would remove {count} of {total} stored {what}, more than {limit_percent:g} %",
                hint="if that is intended, raise --prune-limit; a file or folder may be missing otherwise",
            )


def refused_changes(plan: Plan) -> tuple[Entity, ...]:
    """Return the entities whose new quotas this program refuses."""
    return tuple(
        each.entity
        for each in alterations_of(plan.changes)
        if our_refusals(each.entity, {key: new for key, new in each.changes.items() if new is not None}) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffResult:
    """The plan with what it leaves alone, and the clients to whom something else applies afterwards."""

    DOCUMENT: ClassVar = (
        "store=store_url changes=declared.plan.changes affected=radius.affected "
        "combinations_left_out=radius.combinations_left_out left_alone=declared.unmanaged "
        "not_owned=declared.not_owned"
    )
    store_url: StoreAddress
    declared: DeclaredPlan
    radius: BlastRadius

    @property
    def differs(self) -> bool:
        """Whether anything has to change."""
        return bool(self.declared.plan.changes)

    def kept(self) -> KeptPlan:
        """Return the plan in the form that a file keeps."""
        return KeptPlan(plan=self.declared.plan, store_url=self.store_url)


def diff(store: Store, desired_state: DesiredState) -> DiffResult:
    """Return what has to change for the files to hold, and for whom, with the errors of `declared_plan`."""
    found = declared_plan(store, desired_state)
    return DiffResult(store_url=store.url, declared=found, radius=blast_radius(found.stored, found.plan))
