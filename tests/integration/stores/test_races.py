"""Writers at the same moment: whatever they do to one entity, no change of any of them is lost."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafka_quotas.core.model.entity import EVERYTHING, Entity, entity_filter
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration, QuotaEntry, Store

KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
ROUNDS = 40
MANY = 1000
_WRITER = """
import sys
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration

url, key, changes = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(url)
for number in range(1, changes // 2 + 1):
    for entity, value in ((Entity.of(user="shared"), float(number)), (Entity.of(user=f"{key} {number}"), 1.0)):
        (result,) = store.alter([Alteration(entity=entity, changes={key: value})])
        assert result.error is None, result.error
store.close()
"""


@pytest.mark.parametrize("kind", ["local", "zookeeper"])
def test_two_writers_of_a_thousand_changes_each_lose_none(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Half the changes are to one entity, of which each writer owns a key, half to entities of their own."""
    local = kind == "local"  # its file does not exist yet: making it is part of the race
    url = f"local:{tmp_path / 'quotas.db'}" if local else str(request.getfixturevalue("zookeeper_chroot"))
    command, keys = [sys.executable, "-c", _WRITER, url], KEYS[:2]
    writers = [subprocess.Popen([*command, key, str(MANY)], stderr=subprocess.PIPE, text=True) for key in keys]
    errors = [writer.communicate(timeout=240)[1] for writer in writers]
    assert errors == [""] * len(keys)
    store = open_store(url)
    entries = {entry.entity: dict(entry.quotas) for entry in store.describe(EVERYTHING)}
    snapshot = store.watch(None, timeout_s=0)
    store.close()
    assert entries.pop(Entity.of(user="shared")) == dict.fromkeys(keys, float(MANY // 2))
    assert entries == {
        Entity.of(user=f"{key} {number}"): {key: 1.0} for key in keys for number in range(1, MANY // 2 + 1)
    }
    assert snapshot is not None
    if local:
        assert snapshot.revision.endswith(f":{len(keys) * MANY}")  # every change counted
    else:
        assert _notifications(url) == len(keys) * MANY


def _notifications(url: str) -> int:
    """How many changes brokers were told of under a chroot."""
    server, _, chroot = url.removeprefix("zk://").partition("/")
    client = KazooClient(f"{server}/{chroot}")
    client.start()
    count = len(client.get_children("/config/changes"))
    client.stop()
    client.close()
    return count


@pytest.mark.parametrize(
    "entity", [Entity.of(user="shared"), Entity.of(user="shared", client_id="app"), Entity.of(client_id=None)], ids=str
)
def test_tools_at_one_znode(zookeeper_chroot: str, entity: Entity) -> None:
    """Each tool owns a key, sets and removes it by turns, and must always find it as it left it.

    The removals empty the znode now and then, so that its clean-up, and that of its parents, races with the others.
    """
    failures: list[str] = []
    _together([lambda key=key: _own_a_key(zookeeper_chroot, entity, key, failures) for key in KEYS])  # type: ignore[misc]
    assert failures == []
    store = open_store(zookeeper_chroot)
    assert store.describe(EVERYTHING) == [QuotaEntry(entity=entity, quotas=dict.fromkeys(KEYS, float(ROUNDS)))]
    store.close()


def test_a_user_and_its_clients_come_and_go_at_the_same_time(zookeeper_chroot: str) -> None:
    entities = [Entity.of(user="shared"), *(Entity.of(user="shared", client_id=name) for name in ("a", "b", None))]
    failures: list[str] = []
    _together(
        [lambda entity=entity: _own_a_key(zookeeper_chroot, entity, KEYS[0], failures) for entity in entities]  # type: ignore[misc]
    )
    assert failures == []
    store = open_store(zookeeper_chroot)
    assert {entry.entity for entry in store.describe(EVERYTHING)} == set(entities)
    store.close()


def _own_a_key(url: str, entity: Entity, key: str, failures: list[str]) -> None:
    store = open_store(url)
    for number in range(1, ROUNDS + 1):
        if number % 2 and number != ROUNDS:
            _change(store, entity, key, None, failures)
        _change(store, entity, key, float(number), failures)
    store.close()


def _change(store: Store, entity: Entity, key: str, value: float | None, failures: list[str]) -> None:
    """One change, and a look whether it is there: nobody else touches this key."""
    (result,) = store.alter([Alteration(entity=entity, changes={key: value})])
    found = [entry.quotas.get(key) for entry in store.describe(entity_filter(entity))] or [None]
    if result.error is not None or found != [value]:
        failures.append(f"{key}={value}: {result.error}, found {found}")


def _together(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
