"""A local store with quotas in it."""

from collections.abc import Mapping
from pathlib import Path

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.factory import open_store
from kafka_quotas.stores.store import Alteration


def new_store(folder: Path, quotas: Mapping[Entity, Mapping[str, float]]) -> str:
    """The address of a new local store in a folder that holds these quotas."""
    url = f"local:{folder}/quotas.db"
    opened = open_store(url)
    try:
        results = opened.alter([Alteration(entity=entity, changes=changes) for entity, changes in quotas.items()])
    finally:
        opened.close()
    assert [result.error for result in results] == [None] * len(quotas)
    return url
