"""`kafka-quotas exporter`: wrong usage ends it at once, and it listens where nothing else does."""

import socket
from pathlib import Path

import pytest
from tests.support.processes.run_cli import refused
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.core.model.entity import Entity

USED = {Entity.of(user="alice"): {"producer_byte_rate": 1e6}}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--prometheus", "broker-1:7071"], "not an address of metrics: 'broker-1:7071'"),
        (["--prometheus", "http://[::1"], "not an address of metrics: 'http://[::1'"),
        (["--metric-names", "names.toml"], "--metric-names goes with --prometheus"),
        (["-"], "files are read again at every look, a pipe only once"),
        (["missing.yaml"], "cannot read missing.yaml: No such file or directory"),
        (["--prune", "--selector", "user"], "--selector and --prune without a file"),
        (["quotas.yaml", "--selector", "shoe=*"], "shoe"),
        (["--interval", "0"], "out of range"),
        (["--metrics-top", "1001"], "out of range"),
        (["--listen", "nowhere"], "not a host:port: 'nowhere'"),
    ],
)
def test_wrong_usage_ends_it_with_2(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = new_store(tmp_path, USED)
    assert says in refused("exporter", "--listen", "0", "--store", url, *arguments)


def test_a_local_store_that_is_not_there_ends_it(tmp_path: Path) -> None:
    assert "there is no store at" in refused("exporter", "--store", f"local:{tmp_path}/none.db")


def test_a_port_that_is_taken_ends_it_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused("exporter", "--store", new_store(tmp_path, USED), "--listen", port, code=1)
