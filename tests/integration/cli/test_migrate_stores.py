"""`migrate` and `watch` between real ZooKeeper and Kafka servers."""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.commands.quotas.watch import watch
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store

RATE = "producer_byte_rate"
V6 = "2001:db8::7"


def set_quota(url: str, *entity: str, quotas: str, options: tuple[str, ...] = ()) -> None:
    code, _, err = run_cli("alter", "--store", url, *entity, "--add-config", quotas, *options)
    assert code == 0, err


def migrated(source: str, target: str, *options: str) -> tuple[int, dict[tuple[str, str], str], str]:
    """The exit code, the outcome by name of the entity and key, and the error told."""
    code, out, err = run_cli("migrate", "--from", source, "--to", target, "--output", "json", *options)
    quotas: list[Mapping[str, Any]] = json.loads(out)["quotas"]
    return (
        code,
        {("/".join(str(name) for name in each["entity"].values()), each["key"]): each["outcome"] for each in quotas},
        err,
    )


def test_from_zookeeper_to_kafka_and_back(kafka4: Kafka, zookeeper_chroot: str, unique_name: str) -> None:
    zookeeper, kafka, name = zookeeper_chroot, f"kafka://{kafka4.bootstrap}", unique_name
    set_quota(zookeeper, "--user", f"{name}=a,b c/*é", quotas=f"{RATE}=10MiB,request_percentage=12.5%")
    set_quota(zookeeper, "--user", name, "--client-default", quotas="consumer_byte_rate=unlimited")
    set_quota(zookeeper, "--ip", "10.1.2.3", quotas="connection_creation_rate=5")
    odd = f"{RATE}=0,request_percentage=-1,consumer_byte_rate=7"
    set_quota(zookeeper, "--client", name, quotas=odd, options=("--allow-invalid",))
    expected = {
        (f"{name}=a,b c/*é", RATE): "migrated",
        (f"{name}=a,b c/*é", "request_percentage"): "migrated",
        (f"{name}/None", "consumer_byte_rate"): "migrated",
        ("10.1.2.3", "connection_creation_rate"): "migrated",
        (name, RATE): "refused",
        (name, "request_percentage"): "refused",
        (name, "consumer_byte_rate"): "migrated",
    }
    code, told, err = migrated(zookeeper, kafka, "--dry-run")
    assert (code, err.startswith("error: 2 of 7 quotas would not be in")) == (1, True)
    assert expected.items() <= told.items()
    assert json.loads(run_cli("describe", "--store", kafka, "--client", name, "-o", "json")[1])["entries"] == []

    code, told, err = migrated(zookeeper, kafka)
    assert (code, err.startswith(f"error: 2 of 7 quotas are not in {kafka}")) == (1, True)
    assert expected.items() <= told.items()
    found = json.loads(run_cli("describe", "--store", kafka, "--client", name, "-o", "json")[1])
    assert found["entries"] == [{"entity": {"client-id": name}, "quotas": {"consumer_byte_rate": 7}}]

    again = migrated(zookeeper, kafka)[1]
    assert {again[quota] for quota, outcome in expected.items() if outcome == "migrated"} == {"unchanged"}
    run_cli("alter", "--store", kafka, "--ip", "10.1.2.3", "--delete-config", "connection_creation_rate")


def test_what_zookeeper_cannot_hold_is_refused_by_name(
    kafka4: Kafka, zookeeper_chroot: str, unique_name: str, tmp_path: Path
) -> None:
    local = f"local:{tmp_path}/q.db"
    set_quota(local, "--ip", V6, quotas="connection_creation_rate=5")
    set_quota(local, "--user", unique_name, quotas=f"{RATE}=5")
    code, told, _ = migrated(local, zookeeper_chroot)
    assert (code, told) == (
        1,
        {(V6, "connection_creation_rate"): "refused", (unique_name, RATE): "migrated"},
    )
    table = run_cli("migrate", "--from", local, "--to", zookeeper_chroot)[1]
    assert "is not a valid IP or resolvable host" in table


def test_zero_goes_from_zookeeper_to_zookeeper_where_it_is_allowed(
    zookeeper_chroot: str, zookeeper_server: str
) -> None:
    other = f"zk://{zookeeper_server}/other-{zookeeper_chroot.rpartition('/')[2]}"
    set_quota(zookeeper_chroot, "--user", "a", quotas=f"{RATE}=0", options=("--allow-invalid",))
    client = KazooClient(zookeeper_server)
    client.start()
    client.ensure_path(f"/{other.rpartition('/')[2]}/config")
    client.stop()
    client.close()
    assert migrated(zookeeper_chroot, other)[:2] == (1, {("a", RATE): "refused"})
    assert migrated(zookeeper_chroot, other, "--allow-invalid")[:2] == (0, {("a", RATE): "migrated"})


@pytest.mark.parametrize("kind", ["zookeeper", "kafka"])
def test_changes_of_a_real_store_are_seen(kind: str, kafka4: Kafka, zookeeper_chroot: str, unique_name: str) -> None:
    url = zookeeper_chroot if kind == "zookeeper" else f"kafka://{kafka4.bootstrap}"
    entity = Entity.of(user=unique_name)
    watching = threading.Event()
    seen: list[tuple[float | None, float | None]] = []

    def look() -> None:
        with closing(open_store(url)) as store:
            changes = watch(
                store,
                duration_s=30,
                clock=SystemClock(),
                monotonic_s=time.monotonic,
                pause=time.sleep,
                began=lambda _: watching.set(),
                lost=lambda error: None,
            )
            for each in changes:
                if each.entity == entity:
                    seen.append((each.old, each.new))
                    arrived.release()
                if len(seen) == 3:
                    return

    arrived = threading.Semaphore(0)
    thread = threading.Thread(target=look)
    thread.start()
    assert watching.wait(timeout=240)
    for value in (5.0, 6.0, None):
        store_quotas(url, {entity: {RATE: value}})
        assert arrived.acquire(timeout=240)
    thread.join(timeout=240)
    assert seen == [(None, 5.0), (5.0, 6.0), (6.0, None)]
