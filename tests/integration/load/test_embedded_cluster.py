"""`load-test` against the embedded cluster, against what is not there, and against a broker that says no."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.broker_properties import USERS
from tests.support.brokers.java_process import free_port
from tests.support.brokers.servers import Kafka
from tests.support.processes.run_cli import run_cli

from kafka_quotas.cli.load_test import scenarios as load_run_command
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.cluster_check import LoadRefusedError, look_at_topic
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run.runner import RunProgress, Watcher, run_load
from kafka_quotas.loadtest.run.topics import EmbeddedCluster

QUICK = ("--embedded", "--warmup", "1s", "--duration", "4s", "--quota-window-num", "1")


@pytest.mark.measuring
def test_producers_keep_their_schedules(tmp_path: Path) -> None:
    entities = ("--entity", "/slow", "--entity", "/fast", "--rate", "100rec/s", "--rate", "4MB/s")

    code, out, err = run_cli("load-test", "produce", *QUICK, *entities, "--output", "json", "--out", str(tmp_path))

    assert (code, err) == (0, "PASS: 4 checks met, 2 could not be made\n")
    document = json.loads(out)
    slow, fast = document["entities"]
    # A run does not wait for the last record if it takes longer than the 10 ms that are left, which only a machine does
    # that lets threads wait, by the run's own measure.
    late = slow["records"]["unfinished"] if document["cpu"]["late_ms"] > 1 else 0
    assert late <= 1
    assert slow["records"] == {
        "sent": pytest.approx(500, abs=3),
        "acked": slow["records"]["sent"] - late,
        "unfinished": late,
        "dropped": 0,
        "failed": {},
    }
    assert fast["verdict"]["achieved"] == pytest.approx(4e6 * fast["wire_ratio"], rel=0.02)
    assert 1.005 < fast["wire_ratio"] < 1.05  # a record of 1 KiB has some ten bytes of framing
    assert slow["latency"]["response"]["count"] == pytest.approx(400, abs=3)  # the warm-up has none
    assert slow["latency"]["response"]["max_us"] >= slow["latency"]["service"]["p50_us"]
    assert json.loads((tmp_path / "run.json").read_text()) == document
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "samples.parquet").is_file()


def run_file(folder: Path, client: str, *, duration: str, more: str = "") -> tuple[int, str, str]:
    """Run a scenario of one producer on the embedded cluster."""
    file = folder / "scenario.yaml"
    file.write_text(
        f"""
schema: kafka-quotas.scenario/1
name: one
title: one client
window: {{samples: 1, seconds: 1}}
duration: {duration}
warmup: 1s
topics: [{{name: written, partitions: 4}}]
entities: [{{client-id: load-test, does: produce, topic: written, rate: 200rec/s{client}}}]
{more}
""",
        encoding="utf-8",
    )
    return run_cli(
        *("load-test", "run", str(file), "--embedded", "--output", "json", "--journal-dir", str(folder / "journals"))
    )


@pytest.mark.measuring
def test_a_rate_follows_its_stages(tmp_path: Path) -> None:
    stages = "stages: [{duration: 2s, target: 1000rec/s}, {duration: 0s, target: 100rec/s}]"

    code, out, err = run_file(tmp_path, f", client: raw, {stages}", duration="4s")

    assert (code, err.splitlines()[-1]) == (0, "PASS: 3 checks met")
    (client,) = json.loads(out)["entities"]
    assert client["seconds"]["records"] == [pytest.approx(count, abs=25) for count in (200, 400, 800, 100, 100)]


def test_a_broken_threshold_ends_the_run(tmp_path: Path) -> None:
    code, out, _ = run_file(tmp_path, "", duration="60s", more="abort-on: [response.p50 < 1us]")

    document = json.loads(out)
    assert (code, document["state"], document["interrupted"]) == (1, "void", False)
    assert document["elapsed_s"] < 30
    assert "a threshold was broken: response.p50 < 1us: load-test" in document["judgements"][0]["evidence"]
    assert document["judgements"][-1]["state"] == "not met"


def test_a_quota_that_nobody_keeps_is_not_met() -> None:
    code, out, err = run_cli("load-test", "produce", *QUICK, "--duration", "5s", "--quota", "1MB/s")

    assert code == 1
    assert "the embedded cluster keeps no quotas" in err
    assert "NOT HELD" in out


@pytest.mark.measuring
def test_consumers_read_the_same_records_over_and_over() -> None:
    entities = ("--entity", "/paced", "--entity", "/greedy", "--rate", "2MB/s", "--rate", "max")

    code, out, err = run_cli("load-test", "consume", *QUICK, *entities, "--output", "json")

    assert (code, err) == (0, "PASS: 4 checks met\n")
    paced, greedy = json.loads(out)["entities"]
    assert paced["verdict"]["achieved"] == pytest.approx(2e6 * paced["wire_ratio"], rel=0.05)
    assert greedy["payload_bytes"] > 32_000_000  # more than twice what the topic holds


def test_an_interrupt_ends_the_run_with_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def impatient(_title: str) -> Iterator[Watcher]:
        def watch(progress: RunProgress) -> None:
            if progress.entities[0].acked >= 50:
                signal.raise_signal(signal.SIGINT)

        yield watch

    monkeypatch.setattr(load_run_command, "live_watcher", impatient)

    code, out, err = run_cli(
        *("load-test", "produce", "--embedded", "--duration", "60s", "--warmup", "0s", "--rate", "100rec/s"),
        *("--quota-window-num", "1", "--output", "json"),
    )

    document = json.loads(out)
    assert (code, err) == (130, f"VOID: interrupted after {document['elapsed_s']:.0f} s\n")
    assert (document["interrupted"], document["ok"]) == (True, False)
    assert document["elapsed_s"] < 30
    assert document["entities"][0]["records"]["acked"] >= 50


@pytest.mark.parametrize("verb", ["produce", "consume"])
def test_an_unreachable_cluster_is_one_line_in_bounded_time(verb: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    started = time.monotonic()

    code, out, err = run_cli("load-test", verb, "--bootstrap-server", address)

    assert (code, out) == (1, "")
    assert err.startswith(f"error: kafka://{address} can't be reached ({address}: connection refused)\n")
    assert len(err.splitlines()) == 2
    assert time.monotonic() - started < 20


def test_a_property_that_librdkafka_does_not_know_is_refused() -> None:
    code, _, err = run_cli("load-test", "produce", "--embedded", "-X", "no.such=1")

    assert code == 2
    assert 'No such configuration property: "no.such"' in err


def test_a_topic_without_records_is_refused() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        partitions = cluster.make_topic("empty")
        entity = ClientLoad(name=ClientName(user=None, client_id="a"), workload=Workload.CONSUME, topic="empty")
        plan = LoadPlan(
            bootstrap=cluster.bootstrap, entities=(entity,), duration_s=1, warmup_s=0, window=QuotaWindow(samples=1)
        )
        with pytest.raises(LoadRefusedError, match="topic empty holds no records"):
            look_at_topic(plan, entity)

        cluster.fill("empty", records=partitions, record_size=10)
        view = look_at_topic(plan, entity)
        leaders = _leaders_of(cluster.bootstrap, "empty")

    assert view.leaders == len(leaders)
    assert [each.high - each.low for each in view.filled] == [1] * partitions


def _leaders_of(bootstrap: str, topic: str) -> set[int]:
    """The brokers that lead a topic's partitions.

    The embedded cluster draws them at random.
    """
    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=240).topics[topic].partitions
    return {each.leader for each in partitions.values()}


def test_no_connection_of_a_producer_outlives_its_run() -> None:
    """With librdkafka's threads alive a process may end by SIGABRT: callbacks of records kept them and their client."""
    loads = tuple(
        ClientLoad(name=ClientName(user=None, client_id=f"app-{each}"), workload=Workload.PRODUCE, topic="left")
        for each in range(3)
    )
    with EmbeddedCluster() as cluster:
        cluster.make_topic("left")
        plan = LoadPlan(bootstrap=cluster.bootstrap, entities=loads, duration_s=0.5, warmup_s=0, window=QuotaWindow())
        result = run_load(plan, clock=SystemClock())
        connected = connections_to(cluster.bootstrap)

    assert all(entity.acked for entity in result.entities)
    assert connected <= 1, "the cluster has a client of its own"


def connections_to(address: str) -> int:
    """The connections of this machine to a port of 127.0.0.1 that are open."""
    remote, established = f"0100007F:{int(address.rpartition(':')[2]):04X}", "01"
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum((row[2], row[3]) == (remote, established) for row in rows)


def test_a_missing_topic_is_refused_by_name(kafka4: Kafka, unique_name: str) -> None:
    code, out, err = run_cli("load-test", "consume", "--bootstrap-server", kafka4.bootstrap, "--topic", unique_name)

    assert (code, out) == (1, "")
    assert err.startswith(f"error: topic {unique_name} does not exist at ")


def test_a_wrong_password_is_told_at_once(kafka4: Kafka, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords.properties"
    passwords.write_text("alice=wrong\n")
    security = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256")

    code, out, err = run_cli(
        *("load-test", "produce", "--bootstrap-server", kafka4.sasl_bootstrap, "--entity", "alice/app"),
        *("--passwords", str(passwords), *security),
    )

    assert (code, out) == (1, "")
    note, error, *_ = err.splitlines()
    assert note.startswith("note: the quota window is not known, and Kafka's default of 11 x 1 s is assumed: ")
    assert error.startswith(f"error: authentication failed at {kafka4.sasl_bootstrap}: ")
    assert "wrong" not in err


@pytest.mark.measuring
def test_a_user_is_held_to_a_quota_by_a_real_broker(kafka4: Kafka, unique_name: str, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords.properties"
    passwords.write_text(f"bob={USERS['bob']}\n")
    make_topic(kafka4.bootstrap, unique_name)
    code, _, err = run_cli(
        *("alter", "--bootstrap-server", kafka4.bootstrap, "--user", "bob", "--client", unique_name),
        *("--add-config", "producer_byte_rate=2MB"),
    )
    assert code == 0, err

    code, out, err = run_cli(
        *("load-test", "produce", "--bootstrap-server", kafka4.sasl_bootstrap, "--topic", unique_name),
        *("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "--passwords", str(passwords)),
        *("--entity", f"bob/{unique_name}", "--store", f"kafka://{kafka4.bootstrap}"),
        *("--quota-window-num", "3", "--duration", "20s", "--output", "json"),
    )

    assert (code, err.partition(":")[0]) == (0, "PASS"), err
    entity = json.loads(out)["entities"][0]
    assert entity["verdict"]["quota"] == 2_000_000
    assert entity["verdict"]["ratio"] == pytest.approx(1.0, abs=0.02)
    assert entity["throttle"]["count"] > 0
