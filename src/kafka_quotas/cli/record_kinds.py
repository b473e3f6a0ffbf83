"""Which entity types have a column of their own where entities are listed for machines."""

from collections.abc import Iterable, Sequence

from kafka_quotas.core.entity import ENTITY_TYPES, THRESHOLD_TYPES, Entity
from kafka_quotas.core.threshold_key import is_threshold_entity


def record_kinds(entities: Iterable[Entity]) -> Sequence[str]:
    """The types of Kafka's quotas, and those of thresholds where any of the entities has one."""
    return (*ENTITY_TYPES, *THRESHOLD_TYPES) if any(map(is_threshold_entity, entities)) else ENTITY_TYPES
