"""Quotas of a store that a run overrides: find the changes, make them, and revert only its own.

Invariant: a key is reverted only while it holds the value that the run set. A value that somebody else has stored
since then stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.stores.store import Alteration, Store

Wanted = Iterable[tuple[Entity, Mapping[str, float | None]]]
"""Entities with the wanted values of their keys, None to remove a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertedQuotas:
    """The outcome of a revert, by change."""

    restored: tuple[PlannedChange, ...] = ()
    """Reverted."""
    unchanged: tuple[PlannedChange, ...] = ()
    """Already at the old value."""
    foreign: tuple[PlannedChange, ...] = ()
    """Changed by somebody else, and left alone."""


def changes_to(store: Store, wanted: Wanted) -> tuple[PlannedChange, ...]:
    """Return the changes that give the keys their wanted values, without the keys that have them already."""
    stored = _stored(store)
    return tuple(
        PlannedChange(entity=entity, key=key, old=old, new=new)
        for entity, values in wanted
        for key, new in values.items()
        if (old := stored.get(entity, {}).get(key)) != new
    )


def make_changes(store: Store, changes: Sequence[PlannedChange]) -> None:
    """Store every change.

    Raises:
        KafkaQuotasError: The error of the first change that the store refuses.
    """
    _alter(store, [(change.entity, change.key, change.new) for change in changes])


def revert_changes(store: Store, changes: Sequence[PlannedChange]) -> RevertedQuotas:
    """Revert the changes that are still in force and return the outcome.

    Where a key was changed several times it is reverted to what it was before the first of its changes.

    Raises:
        KafkaQuotasError: The error of the first change that the store refuses.
    """
    stored = _stored(store)
    restored, unchanged, foreign = [], [], []
    for first, made in _chains(changes):
        current = stored.get(first.entity, {}).get(first.key)
        if current == first.old:
            unchanged.append(first)
        elif current in made:
            restored.append(first)
        else:
            foreign.append(first)
    _alter(store, [(change.entity, change.key, change.old) for change in restored])
    return RevertedQuotas(restored=tuple(restored), unchanged=tuple(unchanged), foreign=tuple(foreign))


def _chains(changes: Iterable[PlannedChange]) -> list[tuple[PlannedChange, set[float | None]]]:
    """Return the first change of every key, with the values that it was given since."""
    chains: dict[tuple[Entity, str], tuple[PlannedChange, set[float | None]]] = {}
    for change in changes:
        _, made = chains.setdefault((change.entity, change.key), (change, set()))
        made.add(change.new)
    return list(chains.values())


def _stored(store: Store) -> dict[Entity, Mapping[str, float]]:
    return {entry.entity: entry.quotas for entry in store.describe(EVERYTHING)}


def _alter(store: Store, values: Iterable[tuple[Entity, str, float | None]]) -> None:
    merged: dict[Entity, dict[str, float | None]] = {}
    for entity, key, value in values:
        merged.setdefault(entity, {})[key] = value
    if not merged:
        return
    results = store.alter([Alteration(entity=entity, changes=changes) for entity, changes in merged.items()])
    error = next((result.error for result in results if result.error is not None), None)
    if error is not None:
        raise error
