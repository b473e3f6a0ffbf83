"""Questions that every suite of stores asks."""

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import FilterComponent, Match, QuotaFilter
from kafka_quotas.stores.store import Store


def quotas_of(store: Store, entity: Entity) -> dict[str, float]:
    """What is stored for one entity, asked by the strict filter that spells it out."""
    entries = store.describe(exactly(entity))
    assert len(entries) <= 1
    return {key: value for entry in entries for key, value in entry.quotas.items()}


def exactly(entity: Entity) -> QuotaFilter:
    components = tuple(
        FilterComponent(entity_type=kind, match=Match.DEFAULT if name is None else Match.EXACT, name=name)
        for kind, name in entity.parts
    )
    return QuotaFilter(components=components, strict=True)
