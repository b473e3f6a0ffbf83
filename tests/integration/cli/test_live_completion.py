"""Completion of names from stores that take their time: never in the way of the prompt, good for a minute."""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.brokers.java_process import free_port
from tests.support.processes.run_cli import done, run_cli

from kafka_quotas.cli.completion.values import FRESH_S, names_path, refresh, stored_names
from kafka_quotas.cli.framework.store_choice import choose_store
from kafka_quotas.stores.store import Polling

SOON_S = 0.3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("KAFKA_QUOTAS_")]:
        monkeypatch.delenv(name)
    return tmp_path / "cache"


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def completed(*words: str) -> Sequence[str]:
    """What bash offers after these words."""
    environment = {
        "_KAFKA_QUOTAS_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("kafka-quotas", *words)),
        "COMP_CWORD": str(len(words)),
    }
    out = done(environment=environment)
    return out.split()


@pytest.mark.measuring
@pytest.mark.parametrize("scheme", ["kafka", "zk"])
def test_a_store_that_does_not_answer_delays_nobody(deaf: str, scheme: str) -> None:
    for url in (f"{scheme}://{deaf}", f"{scheme}://127.0.0.1:{free_port()}"):
        assert min(seconds_to_ask(url) for _ in range(3)) < SOON_S


def seconds_to_ask(url: str) -> float:
    """How long it takes to be told that there are no names."""
    before_s = time.monotonic()
    assert stored_names({"store": url}, "user") == ()
    return time.monotonic() - before_s


def test_only_one_process_at_a_time_asks(deaf: str, cache: Path) -> None:
    options = {"store": f"kafka://{deaf}"}
    stored_names(options, "user")
    (asking,) = (cache / "kafka-quotas").glob("*.asking")
    began_s = asking.stat().st_mtime
    stored_names(options, "user")
    assert asking.stat().st_mtime == began_s


def test_names_of_a_cluster_are_there_soon_and_good_for_a_minute(zookeeper_chroot: str) -> None:
    assert (
        run_cli("alter", "--store", zookeeper_chroot, "--user", "alice", "--add-config", "producer_byte_rate=1")[0] == 0
    )
    words = ("describe", "--store", zookeeper_chroot, "--user", "al")
    assert Polling(0.05).until(lambda: completed(*words) == ["alice"], timeout_s=240)
    path = names_path(choose_store(store=zookeeper_chroot))
    assert path.stat().st_mode & 0o777 == 0o600
    remove_quotas(zookeeper_chroot)
    assert completed(*words) == ["alice"], "within the minute nobody is asked"
    old_s = time.time() - FRESH_S - 1
    os.utime(path, (old_s, old_s))
    path.with_suffix(".asking").unlink()
    assert Polling(0.05).until(lambda: completed(*words) == [] and is_new(path), timeout_s=240)


def is_new(path: Path) -> bool:
    return time.time() - path.stat().st_mtime < FRESH_S


def remove_quotas(url: str) -> None:
    client = KazooClient(url.removeprefix("zk://"))
    client.start()
    client.delete("/config/users/alice")
    client.stop()
    client.close()


def test_a_local_store_on_the_command_line_is_read_at_once(tmp_path: Path) -> None:
    store = f"local:{tmp_path}/quotas.db"
    run_cli("alter", "--store", store, "--user", "bob", "--client", "app", "--add-config", "producer_byte_rate=1")
    assert completed("tree", "--store", store, "--user", "") == ["bob"]
    assert completed("tree", "--store", store, "--client", "a") == ["app"]
    assert completed("tree", "--store", store, "--user", "x") == []
    assert not (tmp_path / "cache" / "kafka-quotas").exists()


def test_what_is_kept_are_names_alone(tmp_path: Path) -> None:
    store = f"local:{tmp_path}/quotas.db"
    run_cli("alter", "--store", store, "--user", "bob", "--add-config", "producer_byte_rate=7654321")
    options = {"store": store}
    refresh(options)
    path = names_path(choose_store(store=store))
    assert path.read_text(encoding="utf-8") == '{"user": ["bob"], "client-id": [], "ip": []}'


def test_options_that_contradict_each_other_complete_nothing() -> None:
    assert stored_names({"store": "local:/x", "zookeeper": "h"}, "user") == ()
