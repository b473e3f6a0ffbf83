"""The shortcut that most queries can take: a filter that can match one entity only, found by its key."""

from kafka_quotas.core.describe_filter import Match, QuotaFilter
from kafka_quotas.core.entity import Entity


def single_entity(quota_filter: QuotaFilter) -> Entity | None:
    """The one entity that a filter without faults can match, None where it may match several."""
    if not quota_filter.strict or not quota_filter.components:
        return None
    if any(component.match is Match.ANY for component in quota_filter.components):
        return None
    return Entity.from_pairs((component.entity_type, component.name) for component in quota_filter.components)
