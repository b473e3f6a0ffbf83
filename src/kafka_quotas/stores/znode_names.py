"""Names that Kafka accepts and ZooKeeper can't hold."""

from typing import Final

from kafka_quotas.core.entity import Entity

_RELATIVE: Final = frozenset({".", ".."})


def has_znode(entity: Entity) -> bool:
    """Whether ZooKeeper can have a znode for an entity: paths take no `.` and no `..`, and sanitizing keeps dots."""
    return not any(name in _RELATIVE for _, name in entity.parts)
