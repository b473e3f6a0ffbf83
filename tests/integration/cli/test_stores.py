"""`alter` and `describe` as typed, on a real Kafka 4 cluster and on Kafka 3.9's ZooKeeper."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import printed, refused, run_cli

TEN_MIB = "producer_byte_rate=10MiB"


def entries(*options: str) -> list[Mapping[str, Any]]:
    code, out, err = run_cli("describe", *options, "--output", "json")
    assert (code, err if not err.startswith("note: no stored quota") else "") == (0, "")
    found: list[Mapping[str, Any]] = json.loads(out)["entries"]
    return found


def test_a_quota_set_in_kafka_is_there_for_kafkas_own_tool(kafka4: Kafka, unique_name: str) -> None:
    at = ("--bootstrap-server", kafka4.bootstrap)
    code, out, err = run_cli("alter", *at, "--user", unique_name, "--add-config", TEN_MIB)
    line = f"user {unique_name} in kafka://{kafka4.bootstrap}: producer_byte_rate not set -> 10 MiB/s\n"
    assert (code, out, err) == (0, line, "")
    assert entries(*at, "--user", unique_name) == [
        {"entity": {"user": unique_name}, "quotas": {"producer_byte_rate": 10485760}}
    ]
    tool = [
        "--bootstrap-server",
        kafka4.bootstrap,
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        unique_name,
    ]
    assert "producer_byte_rate=1.048576E7" in kafka4.run_tool("kafka.admin.ConfigCommand", tool).stdout
    code, _, _ = run_cli("alter", *at, "--user", unique_name, "--delete-config", "producer_byte_rate")
    assert code == 0
    assert entries(*at, "--user", unique_name) == []


def test_a_dry_run_is_checked_by_the_broker_and_writes_nothing(kafka4: Kafka, unique_name: str) -> None:
    at = ("--bootstrap-server", kafka4.bootstrap)
    code, out, err = run_cli("alter", *at, "--user", unique_name, "--add-config", TEN_MIB, "--dry-run")
    assert (code, out.splitlines()[0]) == (
        0,
        f"dry run: user {unique_name} in kafka://{kafka4.bootstrap}: producer_byte_rate not set -> 10 MiB/s",
    )
    assert err == "note: checked here and by the broker (validate-only); nothing was written\n"
    assert entries(*at, "--user", unique_name) == []


def test_what_the_broker_refuses_is_told_in_its_words(kafka4: Kafka, unique_name: str) -> None:
    options = ("--ip", f"{unique_name}.invalid", "--add-config", "connection_creation_rate=5")
    code, out, err = run_cli("alter", "--bootstrap-server", kafka4.bootstrap, *options)
    assert code != 0
    assert out == ""
    assert f"{unique_name}.invalid is not a valid IP or resolvable host" in err.splitlines()[0]
    assert entries("--bootstrap-server", kafka4.bootstrap, "--ip", f"{unique_name}.invalid") == []


def test_a_command_config_logs_in(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    if not kafka4.sasl_bootstrap:
        pytest.skip("the cluster named with --kafka4 has no listener with authentication")
    file = tmp_path / "client.properties"
    properties = kafka4.client_properties("admin")
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    at = ("--bootstrap-server", kafka4.sasl_bootstrap, "--command-config", str(file))
    assert run_cli("alter", *at, "--user", unique_name, "--add-config", TEN_MIB)[0] == 0
    assert len(entries(*at, "--user", unique_name)) == 1


def test_the_arithmetic_of_a_reachable_cluster(kafka4_cluster: Kafka, unique_name: str) -> None:
    at = ("--bootstrap-server", kafka4_cluster.bootstrap)
    make_topic(kafka4_cluster.bootstrap, unique_name)
    assert run_cli("alter", *at, "--user", unique_name, "--add-config", "producer_byte_rate=10MB")[0] == 0
    asked = ("--effective", "--user", unique_name, "--client", "app", "--topic", unique_name)
    out = printed("describe", *at, *asked)
    assert f"x 2 brokers = up to 20 MB/s; topic {unique_name} leads on 1: 10 MB/s" in out
    _, out, _ = run_cli("describe", *at, *asked, "--output", "json")
    document = json.loads(out)
    assert document["cluster"] == {"brokers": 2, "topic": unique_name, "leading_brokers": 1}
    assert document["warnings"] == []
    (produce, *_) = document["clients"][0]["quotas"]
    assert (produce["cluster_total"], produce["topic_total"]) == (20_000_000, 10_000_000)


def test_a_topic_that_is_not_there_is_told(kafka4: Kafka, unique_name: str) -> None:
    options = ("--effective", "--user", "alice", "--topic", unique_name)
    err = refused("describe", "--bootstrap-server", kafka4.bootstrap, *options, code=1)
    assert unique_name in err.splitlines()[0]


def test_zookeeper_takes_quotas_and_on_demand_what_only_it_allows(zookeeper_chroot: str) -> None:
    at = ("--zookeeper", zookeeper_chroot.removeprefix("zk://"))
    code, out, _ = run_cli("alter", *at, "--user", "alice", "--client-default", "--add-config", TEN_MIB)
    assert (code, out) == (
        0,
        f"user alice, default client-id in {zookeeper_chroot}: producer_byte_rate not set -> 10 MiB/s\n",
    )
    zero = ("alter", *at, "--user", "alice", "--add-config", "producer_byte_rate=0")
    code, _, err = run_cli(*zero)
    assert (code, "greater than 0" in err) == (2, True)
    assert run_cli(*zero, "--allow-invalid")[0] == 0
    assert entries(*at) == [
        {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 0}},
        {"entity": {"user": "alice", "client-id": None}, "quotas": {"producer_byte_rate": 10485760}},
    ]


@pytest.mark.parametrize("option", ["--bootstrap-server", "--zookeeper"])
def test_a_server_that_is_not_there_is_one_line_and_a_hint(option: str) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        err = refused("alter", option, address, "--user", "alice", "--add-config", TEN_MIB, code=1)
    lines = err.splitlines()
    assert lines[0].startswith("error: ")
    assert address in lines[0]
    assert len(lines) == 2
    assert lines[1].startswith("hint: ")
