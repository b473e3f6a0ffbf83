"""The quotas that apply to the clients of a run, by Kafka's resolution over all entries of a store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaKey,
    Unit,
)
from kafka_quotas.core.model.value_format import format_byte_rate, format_quota_value
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota, EffectiveQuotas
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.stores.store import Alteration, QuotaEntry, Store

LOCAL_ADDRESS = "127.0.0.1"
"""Assumed address of the clients of a run, whose connection quota applies to them."""

KEY_OF = {
    Workload.PRODUCE: PRODUCER_BYTE_RATE,
    Workload.CONSUME: CONSUMER_BYTE_RATE,
    Workload.REQUESTS: REQUEST_PERCENTAGE,
    Workload.MUTATE: CONTROLLER_MUTATION_RATE,
    Workload.CONNECT: CONNECTION_CREATION_RATE,
}
"""The quota that limits each workload most directly."""


InForce = Mapping[tuple[ClientName, QuotaKey], EffectiveQuota]
"""Quotas that apply to the clients of a run, by client and key, without limits that mean unlimited."""


def quotas_in_force(entries: Iterable[QuotaEntry], names: Sequence[ClientName]) -> InForce:
    """Return the quotas that apply to each client under every key, given all entries of a store."""
    resolver = EffectiveQuotas(entries)
    from_here = resolver.for_ip(LOCAL_ADDRESS)
    return {
        (name, quota.key): replace(quota, limit=None) if (quota.limit or 0) >= quota.key.unlimited else quota
        for name in names
        for quota in (*resolver.for_client(name.user or ANONYMOUS, name.client_id or ""), from_here)
    }


def stored_in_force(
    store: Store, names: Sequence[ClientName], changed: Iterable[tuple[Entity, Mapping[str, float]]] = ()
) -> InForce:
    """Return the quotas that apply to each client by a store, once those of some entities are changed."""
    entries = {entry.entity: dict(entry.quotas) for entry in store.describe(EVERYTHING)}
    for entity, values in changed:
        entries.setdefault(entity, {}).update(values)
    return quotas_in_force([QuotaEntry(entity=entity, quotas=values) for entity, values in entries.items()], names)


def differences(before: InForce, after: InForce) -> tuple[str, ...]:
    """Return the limits that differ, one line for all clients with the same change."""
    changed: dict[tuple[QuotaKey, float | None, float | None], list[ClientName]] = {}
    for (name, key), quota in after.items():
        old = before[name, key].limit
        if quota.limit != old:
            changed.setdefault((key, old, quota.limit), []).append(name)
    return tuple(
        f"{key.name} of {names[0].label}: {_shown(key, old)} became {_shown(key, new)}"
        + (f" (and of {len(names) - 1} others)" if len(names) > 1 else "")
        for (key, old, new), names in changed.items()
    )


def _shown(key: QuotaKey, limit: float | None) -> str:
    if limit is None:
        return "no limit"
    return format_byte_rate(limit) if key.unit is Unit.BYTES_PER_SECOND else format_quota_value(key, limit)


Wanted = Iterable[tuple[Entity, Mapping[str, float | None]]]
"""Entities with the wanted values of their keys, None to remove a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertedQuotas:
    """The outcome of a revert, by change."""

    restored: tuple[PlannedChange, ...] = ()
    unchanged: tuple[PlannedChange, ...] = ()
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
    """Store every change."""
    _alter(store, [(change.entity, change.key, change.new) for change in changes])


def revert_changes(store: Store, changes: Sequence[PlannedChange]) -> RevertedQuotas:
    """Revert the changes that are still in force and return the outcome.

    Where a key was changed several times it is reverted to what it was before the first of its changes.
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
