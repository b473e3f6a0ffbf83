"""Questions that every suite of stores asks."""

from kafka_quotas.core.model.entity import Entity, entity_filter
from kafka_quotas.stores.store import Store


def quotas_of(store: Store, entity: Entity) -> dict[str, float]:
    """Return what is stored for one entity."""
    entries = store.describe(entity_filter(entity))
    assert len(entries) <= 1
    return {key: value for entry in entries for key, value in entry.quotas.items()}
