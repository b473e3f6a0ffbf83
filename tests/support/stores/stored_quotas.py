"""Stores with quotas in them."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration


def store_quotas(url: str, quotas: Mapping[Entity, Mapping[str, float | None]]) -> None:
    """Set quotas, or remove those that are None, and fail if one is refused."""
    with closing(open_store(url)) as store:
        results = store.alter([Alteration(entity=entity, changes=changes) for entity, changes in quotas.items()])
    assert [result.error for result in results] == [None] * len(quotas)


def new_store(folder: Path, quotas: Mapping[Entity, Mapping[str, float]]) -> str:
    """The address of a new local store in a folder that holds these quotas.

    The file is there without any too.
    """
    url = f"local:{folder}/quotas.db"
    for value in (1.0, None):
        store_quotas(url, {Entity.of(user="nobody"): {"producer_byte_rate": value}})
    store_quotas(url, quotas)
    return url
