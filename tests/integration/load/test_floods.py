"""Floods from the command line, and clients that log in, against a real broker and against what is not there."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.brokers.broker_properties import USERS
from tests.support.brokers.java_process import free_port
from tests.support.brokers.servers import Kafka
from tests.support.load.raw_load import raw, run_raw
from tests.support.processes.run_cli import run_cli

from kafka_quotas.loadtest.clients.cluster_check import LoadRefusedError
from kafka_quotas.loadtest.plan.workload import RequestFlood, Workload

QUICK = ("--duration", "2s", "--warmup", "0s", "--yes", "--output", "json")
USER = next(iter(USERS))


def topics_of(kafka: Kafka, load: str) -> set[str]:
    """The topics that load tests of a kind have made.

    Brokers make some for themselves, and other tests use the broker at the same time.
    """
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=240).topics
    return {name for name in topics if name.startswith(f"kafka-quotas-{load}-")}


def flooded(*arguments: str, journal: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a flood, whose only client is in `only`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(journal))
        code, out, err = run_cli("load-test", *arguments, *QUICK)
    assert out, err
    document = json.loads(out)
    (only,) = document["entities"]
    return code, {**document, "only": only}


def test_requests_flood_a_topic_that_is_made_and_removed(kafka4: Kafka, tmp_path: Path) -> None:
    before = topics_of(kafka4, "requests")

    _, document = flooded(
        "requests", "--api", "fetch", "--rate", "50req/s", "--bootstrap-server", kafka4.bootstrap, journal=tmp_path
    )

    assert document["only"]["records"]["acked"] > 0
    assert document["only"]["records"]["failed"] == {}
    assert topics_of(kafka4, "requests") == before
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_fetch_that_the_broker_withholds_is_an_answer_like_any_other(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    limit = ("--entity", f"/{unique_name}", "--set-quota", "0.5")
    _, document = flooded(
        "requests", "--api", "fetch", *limit, "--bootstrap-server", kafka4.bootstrap, journal=tmp_path
    )

    assert document["only"]["throttle"]["count"] > 0
    assert document["only"]["records"]["failed"] == {}


def test_topics_are_mutated_and_none_is_left(kafka4: Kafka, tmp_path: Path) -> None:
    before = topics_of(kafka4, "mutate")

    for kind in ("create", "delete", "partitions"):
        _, document = flooded(
            *("mutate", "--kind", kind, "--topics", "4", "--partitions", "2"),
            *("--rate", "4req/s", "--bootstrap-server", kafka4.bootstrap),
            journal=tmp_path,
        )
        assert document["only"]["records"]["acked"] > 0, kind
        assert document["only"]["records"]["failed"] == {}, kind

    assert topics_of(kafka4, "mutate") == before


def test_connections_are_counted(kafka4: Kafka, tmp_path: Path) -> None:
    _, document = flooded("connect", "--rate", "20conn/s", "--bootstrap-server", kafka4.bootstrap, journal=tmp_path)

    assert document["only"]["unit"] == "connections/s"
    assert document["only"]["records"]["acked"] > 0
    assert document["only"]["records"]["failed"] == {}


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_raw_clients_log_in(kafka4: Kafka, mechanism: str, tls: bool) -> None:
    address = kafka4.sasl_tls_bootstrap if tls else kafka4.sasl_bootstrap
    flood = RequestFlood(api="ApiVersions")
    properties = login(kafka4, mechanism, tls=tls)

    (client,) = run_raw(
        address,
        [raw(Workload.REQUESTS, flood=flood, rate=100)],
        seconds=60.0,
        properties=properties,
        until=lambda: True,
    )
    assert client.error is None

    (refused,) = run_raw(
        address,
        [raw(Workload.REQUESTS, flood=flood, rate=100)],
        seconds=60.0,
        properties={**properties, "sasl.password": "wrong"},
    )
    assert isinstance(refused.error, LoadRefusedError)
    assert "authentication failed" in refused.error.message


def login(kafka: Kafka, mechanism: str, *, tls: bool) -> dict[str, str]:
    """A user's properties by librdkafka's names."""
    trust = {"ssl.ca.location": kafka.client_properties(USER, tls=True)["ssl.truststore.location"]} if tls else {}
    return {
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": USERS[USER],
        **trust,
    }


def test_a_flood_of_nobody_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    code, out, err = run_cli("load-test", "connect", "--bootstrap-server", address, "--yes")

    assert (code, out) == (1, "")
    assert f"{address}" in err
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("requests", "--api", "Nonsense", "--bootstrap-server", "h:1"), "no flood of Nonsense requests"),
        (("requests", "--api", "Fetch"), "say what to put under load"),
        (("requests", "--api", "Fetch", "--bootstrap-server", "h:1"), "requests makes 1 topic on h:1"),
        (("requests", "--api", "Fetch", "--rate", "5MB/s", "--embedded"), "rate in bytes"),
        (("mutate", "--bootstrap-server", "h:1"), "mutate floods brokers with changes of topics on h:1"),
        (("mutate", "--set-quota", "0", "--bootstrap-server", "h:1"), "above 0"),
        (("connect", "--rate", "5conn/s", "--rate", "6conn/s", "--embedded"), "--rate is given 2 times"),
        (("connect", "--set-quota", "5", "--bootstrap-server", "h:1"), "connect sets 1 quota on h:1"),
    ],
)
def test_floods_that_can_not_be_meant_are_refused(arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run_cli("load-test", *arguments)

    assert (code, out) == (2, "")
    assert said in err
