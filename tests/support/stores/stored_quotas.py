"""A local store with quotas in it."""

from collections.abc import Mapping
from pathlib import Path

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration


def new_store(folder: Path, quotas: Mapping[Entity, Mapping[str, float]]) -> str:
    """The address of a new local store in a folder that holds these quotas.

    The file is there without any too.
    """
    url = f"local:{folder}/quotas.db"
    opened = open_store(url)
    try:
        for value in (1.0, None):
            opened.alter([Alteration(entity=Entity.of(user="nobody"), changes={"producer_byte_rate": value})])
        results = opened.alter([Alteration(entity=entity, changes=changes) for entity, changes in quotas.items()])
    finally:
        opened.close()
    assert [result.error for result in results] == [None] * len(quotas)
    return url
