"""Quotas of a store changed for the time of a run: what is changed, set, and put back without harm to others.

Invariant: a key is put back only where it still holds what the run set; what somebody else stored there meanwhile is
theirs and stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.stores.store import Alteration, Store

Wanted = Iterable[tuple[Entity, Mapping[str, float | None]]]
"""Entities, and what their keys are to be; None removes a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """What became of the changes of a run: put back, as before already, or changed by somebody else and left alone."""

    restored: tuple[PlannedChange, ...] = ()
    unchanged: tuple[PlannedChange, ...] = ()
    foreign: tuple[PlannedChange, ...] = ()


def changes_to(store: Store, wanted: Wanted) -> tuple[PlannedChange, ...]:
    """The changes that make the wanted values true; nothing for keys that hold them already."""
    stored = _stored(store)
    return tuple(
        PlannedChange(entity=entity, key=key, old=old, new=new)
        for entity, values in wanted
        for key, new in values.items()
        if (old := stored.get(entity, {}).get(key)) != new
    )


def make_changes(store: Store, changes: Sequence[PlannedChange]) -> None:
    """Nothing; every change is stored. Raises the error of the first that the store refuses."""
    _alter(store, [(change.entity, change.key, change.new) for change in changes])


def put_back(store: Store, changes: Sequence[PlannedChange]) -> PutBack:
    """What became of the changes; those that are still in force are undone. Raises what the store refuses with."""
    stored = _stored(store)
    restored, unchanged, foreign = [], [], []
    for change in changes:
        current = stored.get(change.entity, {}).get(change.key)
        if current == change.old:
            unchanged.append(change)
        elif current == change.new:
            restored.append(change)
        else:
            foreign.append(change)
    _alter(store, [(change.entity, change.key, change.old) for change in restored])
    return PutBack(restored=tuple(restored), unchanged=tuple(unchanged), foreign=tuple(foreign))


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
