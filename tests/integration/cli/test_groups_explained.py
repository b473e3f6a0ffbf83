"""What a running daemon says of groups while one of them is held back: `top`, `why`, its metrics and its page."""

import json
import re
import shlex
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.processes.run_cli import printed
from tests.support.processes.shown_commands import ROOT

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.run.topics import EmbeddedCluster

POLICY = """
[[group]]
name = "analytics"
producer_byte_rate = 400_000

[[group]]
name = "analytics/streams"
members = [{ client_id_prefix = "wordcount-" }]

[[group]]
name = "analytics/alerts"
members = [{ client_id = "alerts" }]
guaranteed = { producer_byte_rate = 300_000 }

[[group]]
name = "local"
members = [{ address = "127.0.0.0/8" }]
connection_creation_rate = 1000
"""
GENERATED = [f"wordcount-0f3e-StreamThread-{number}-producer" for number in (1, 2)]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that throttles two generated client-ids for the limit of a group around theirs."""
    folder = tmp_path_factory.mktemp("groups")
    policy = folder / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    set_quota(folder, Entity.of(client_id="idle"), producer_byte_rate=1e6)
    options = ["--quota-window-num", "3", "--metrics-port", "127.0.0.1:0", "--policy", str(policy)]
    with (
        EmbeddedCluster() as cluster,
        running_daemon(folder, upstream=cluster.bootstrap, options=options) as daemon,
    ):
        loads = [
            threading.Thread(
                target=acknowledgements, args=(daemon.bootstrap, "topic", name), kwargs={"duration_s": 15.0}
            )
            for name in GENERATED
        ]
        for load in loads:
            load.start()
        try:
            daemon.wait_until(lambda status: len({each.client_id for each in status.throttled}) == len(loads))
            yield daemon
        finally:
            for load in loads:
                load.join()


def answer(daemon: DaemonProcess, command: str, *options: str) -> Any:
    return json.loads(printed(command, "--control", str(daemon.control), *options, "--output", "json"))


def test_top_has_the_group_that_both_clients_are_charged_at(busy: DaemonProcess) -> None:
    rows = {(row["user"], row["client_id"], row["key"]): row for row in answer(busy, "top", "--once")["rows"]}
    row = rows[":group", "analytics", "producer_byte_rate"]
    assert (row["limit"], row["level"], row["entity"]) == (400_000, "group", {"group": "analytics"})
    assert row["throttled"]
    connections = rows[":group", "local", "connection_creation_rate"]
    assert (connections["limit"], connections["observed"] > 0) == (1000, True)


def test_why_names_the_group_whose_limit_holds_the_client(busy: DaemonProcess) -> None:
    found = answer(busy, "why", "--client", GENERATED[0])
    assert (found["group"], found["throttled_by"]) == ("analytics/streams", "producer_byte_rate")
    assert ", set on group analytics, throttled " in found["verdict"][0]
    assert "it is in group analytics/streams, within analytics" in found["verdict"]


def test_why_says_that_a_guaranteed_rate_keeps_a_client_from_that_limit(busy: DaemonProcess) -> None:
    found = answer(busy, "why", "--client", "alerts")
    assert found["group"] == "analytics/alerts"
    assert found["verdict"][-1].startswith("group analytics/alerts is guaranteed 300 kB/s of producer_byte_rate")
    assert answer(busy, "why", "--client", "other")["verdict"][-1] == "it is in no group"


def test_the_address_tells_the_group_of_connections(busy: DaemonProcess) -> None:
    assert answer(busy, "why", "--client", "other", "--ip", "127.0.0.1")["group"] == "local"


def page(daemon: DaemonProcess, path: str) -> str:
    with urllib.request.urlopen(daemon.metrics_url.replace("/metrics", path), timeout=10) as reply:
        return str(reply.read().decode())


def test_metrics_and_the_page_name_the_group_as_well(busy: DaemonProcess) -> None:
    assert re.search(
        r'^kafka_server_produce_byte_rate_limit\{[^}]*client_id="analytics",mode="smooth",user=":group"\} 400000\.0$',
        page(busy, "/metrics"),
        re.MULTILINE,
    )
    shown = json.loads(page(busy, "/api/overview"))
    assert "group analytics" in {row["group"] for row in shown["rows"] if row["held"]}
    assert {row["entity"] for row in shown["waiting"]} <= {"group analytics"}
    effective = json.loads(page(busy, f"/api/effective?client_id={GENERATED[0]}"))
    assert effective["group"] == "analytics/streams"
    assert ("group", "group analytics") in {(each["level"], each["entity"]) for each in effective["answers"]}


PAGE = (ROOT / "docs" / "explanation" / "groups.md").read_text(encoding="utf-8")


def test_the_page_shows_what_the_daemon_decides(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```\n(\$ kafka-quotas daemon decide .*?)```", PAGE, re.DOTALL | re.MULTILINE)
    set_quota(tmp_path, Entity.of(user="checkout"), producer_byte_rate=30e6)
    set_quota(tmp_path, Entity.of(user=None), producer_byte_rate=5e6)
    options = ["--policy", str(ROOT / "examples" / "daemon" / "groups.toml")]
    lines = [line for line in shown.splitlines() if line.startswith("$ ")]
    with EmbeddedCluster() as cluster, running_daemon(tmp_path, upstream=cluster.bootstrap, options=options) as daemon:
        decided = [printed(*shlex.split(line)[2:], "--control", str(daemon.control)) for line in lines]
    printed_here = [f"{line}\n{table}" for line, table in zip(lines, decided, strict=True)]
    assert whose("".join(printed_here)) == whose(shown)
    assert [int(table.splitlines()[2].split()[0]) > 0 for table in decided] == [True, True, False]


def whose(text: str) -> list[list[str]]:
    """Return the quotas and entities of decisions, without figures, which depend on the time in between."""
    rows = [line.split("  ") for line in text.splitlines() if not line.startswith(("$", "-"))]
    return [[cell.strip() for cell in cells if re.search(r"[a-z]{3}", cell)] for cells in rows]


def test_the_status_names_the_group_that_was_throttled(busy: DaemonProcess) -> None:
    assert re.search(
        r"^  group analytics at broker \S+ by producer_byte_rate: \d+x ",
        printed("daemon", "status", "--control", str(busy.control)),
        re.MULTILINE,
    )
