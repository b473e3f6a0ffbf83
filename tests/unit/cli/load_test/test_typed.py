"""Loads that are typed, and the scenarios that they become."""

import math
from typing import Any

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.load_test.request import RunRequest, ready_scenario
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.loadtest.plan.workload import ClientKind, MutationFlood, MutationKind, RequestFlood
from kafka_quotas.loadtest.scenario.model import Security


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """The requests that are run, none of which starts anything."""
    requests: list[RunRequest] = []

    def run(order: RunRequest, *_: object, **__: object) -> int:
        requests.append(order)
        return 0

    monkeypatch.setattr("kafka_quotas.cli.load_test.typed.run_and_keep", run)
    return requests


def typed(asked: list[RunRequest], *arguments: str) -> RunRequest:
    code, out, err = run_cli("load-test", *arguments)

    assert (code, out) == (0, ""), err
    return asked[-1]


TWO = ("--entity", "alice/a", "--entity", "/b")


def test_quotas_to_set_are_those_of_the_clients_and_the_control_is_one_of_them(asked: list[RunRequest]) -> None:
    order = typed(asked, "produce", "--broker-jars", "jars", *TWO, "--set-quota", "2MB/s", "--control", "/b")

    assert [(quota.entity, quota.values) for quota in order.scenario.quotas] == [
        (Entity.of(user="alice", client_id="a"), (("producer_byte_rate", 2e6),)),
        (Entity.of(client_id="b"), (("producer_byte_rate", 2e6),)),
    ]
    assert [entity.control for entity in order.scenario.entities] == [False, True]
    assert (order.is_typed, order.reads_quotas, order.checks_delivery) == (True, True, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*TWO, "--quota", "1", "--quota", "2", "--quota", "3"), "--quota is given 3 times for 2 entities"),
        ((*TWO, "--rate", "1rec/s", "--rate", "2rec/s", "--rate", "3rec/s"), "--rate is given 3 times for 2 entities"),
        ((*TWO, "--control", "c"), "--control c is not one of the clients"),
        (("--record-size", "2MB"), "a record has 1 to 900000 bytes, not 2000000"),
        (("--expect", "nonsense"), "--expect: not an expectation: 'nonsense'"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    arguments: tuple[str, ...], message: str, asked: list[RunRequest]
) -> None:
    code, out, err = run_cli("load-test", "produce", "--embedded", *arguments)

    assert (code, out, asked) == (2, "", [])
    assert err.startswith(f"error: {message}\nhint: ")


def test_one_quota_serves_all_clients_and_several_one_each(asked: list[RunRequest]) -> None:
    window = ("--quota-window-num", "3", "--quota-window-size-seconds", "1")
    one = typed(asked, "consume", "--bootstrap-server", "b:1", *window, *TWO, "--quota", "1MB/s")
    each = typed(asked, "produce", "--through-daemon", "--embedded", *TWO, "--quota", "1MB/s", "--quota", "unlimited")

    assert [client.judge_by for client in one.scenario.entities] == [1e6, 1e6]
    assert [client.judge_by for client in each.scenario.entities] == [1e6, math.inf]
    assert {client.in_flight for client in one.scenario.entities} == {1}
    assert [topic.is_there for topic in one.scenario.topics] == [True]
    assert not one.checks_delivery


def test_requests_get_a_topic_of_their_own_only_if_they_need_one(asked: list[RunRequest]) -> None:
    fetches = typed(asked, "requests", "--broker-jars", "jars", "--api", "fetch", "--rate", "50req/s")
    versions = typed(asked, "requests", "--broker-jars", "jars", "--api", "ApiVersions", "-X", "security.protocol=SSL")

    assert [topic.name for topic in fetches.scenario.topics] == ["flood"]
    assert (versions.scenario.topics, versions.scenario.security) == ((), Security.TLS)
    (client,) = fetches.scenario.entities
    assert (client.flood, client.client, client.record_size) == (RequestFlood(api="Fetch"), ClientKind.RAW, 100)


def test_topics_to_delete_are_a_hundred_unless_given(asked: list[RunRequest]) -> None:
    order = typed(asked, "mutate", "--broker-jars", "jars", "--kind", "delete", "--set-quota", "5")

    assert order.scenario.entities[0].flood == MutationFlood(kind=MutationKind.DELETE, total_topics=100)
    assert order.scenario.quotas[0].values == (("controller_mutation_rate", 5.0),)
    assert ("controller.quota.window.num", "11") in order.scenario.broker_settings


def test_the_quota_of_connections_is_that_of_the_address(asked: list[RunRequest]) -> None:
    order = typed(asked, "connect", "--broker-jars", "jars", *TWO, "--set-quota", "20")

    assert [(each.entity, each.values) for each in order.scenario.quotas] == [
        (Entity.of(ip="127.0.0.1"), (("connection_creation_rate", 20.0),))
    ]


def test_a_floods_length_and_thresholds_are_those_of_its_scenario(asked: list[RunRequest]) -> None:
    options: Any = ("--duration", "5s", "--warmup", "2s", "--expect", "throttle.count  > 0")
    order = typed(asked, "connect", "--broker-jars", "jars", *options)

    assert (order.terms.duration_s, order.terms.warmup_s) == (5.0, 2.0)
    assert order.terms.expect == ("throttle.count > 0",)
    scenario, _ = ready_scenario(order)
    assert (scenario.duration_s, scenario.warmup_s) == (5.0, 2.0)
    assert scenario.expect == ("throttle.count > 0",)
