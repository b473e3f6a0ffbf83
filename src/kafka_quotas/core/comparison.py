"""What is different between two contents of stores, quota by quota."""

from collections.abc import Iterator

from kafka_quotas.core.entity import Entity
from kafka_quotas.core.plan import Content, PlannedChange, same_value
from kafka_quotas.core.threshold_key import STORED_KEYS

_KEY_ORDER = {name: index for index, name in enumerate(STORED_KEYS)}


def differences(before: Content, after: Content) -> tuple[PlannedChange, ...]:
    """The quotas that are not the same in both, as changes from `before` to `after`, sorted by entity and key."""
    pairs = (
        (entity, key, _value(before, entity, key), _value(after, entity, key))
        for entity, key in quotas_in(before, after)
    )
    return tuple(
        PlannedChange(entity=entity, key=key, old=old, new=new)
        for entity, key, old, new in pairs
        if not same_value(old, new)
    )


def quotas_in(*contents: Content) -> Iterator[tuple[Entity, str]]:
    """The quotas of several contents, each once, sorted by entity and key."""
    entities = {entity for content in contents for entity in content}
    for entity in sorted(entities, key=lambda each: each.sort_key):
        keys = {key for content in contents for key in content.get(entity, {})}
        for key in sorted(keys, key=lambda name: (_KEY_ORDER.get(name, len(_KEY_ORDER)), name)):
            yield entity, key


def quota_count(content: Content) -> int:
    """How many quotas there are, over all entities."""
    return sum(len(quotas) for quotas in content.values())


def _value(content: Content, entity: Entity, key: str) -> float | None:
    return content.get(entity, {}).get(key)
