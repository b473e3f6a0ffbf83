"""`kafka-quotas doctor`: what it finds in stored quotas and in what a cluster tells."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.processes.run_cli import printed, run_cli
from tests.support.stores.stored_quotas import new_store

from kafka_quotas.commands.insight.doctor import odd_cluster
from kafka_quotas.commands.quotas.quota_checks import Finding, Severity, odd_entries
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.store import ClusterInfo, QuotaEntry

ALICE = Entity.of(user="alice")
PRODUCE, FETCH, PERCENT = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


def entry(entity: Entity, **quotas: float) -> QuotaEntry:
    return QuotaEntry(entity=entity, quotas=quotas)


def found(*entries: QuotaEntry, threads: int | None = None) -> list[tuple[str, str, str]]:
    return [(each.severity.value, each.check, each.about) for each in odd_entries(entries, threads=threads)]


FINE: Mapping[str, float] = {PRODUCE: 1e7, FETCH: 2e7, PERCENT: 200.0, "controller_mutation_rate": 5.5}


UNLIMITED = 9223372036854775807.0


def test_ordinary_quotas_and_values_at_the_border_are_nothing_odd() -> None:
    address = entry(Entity.of(ip="10.0.0.1"), connection_creation_rate=5)
    border = {PRODUCE: 16_384.0, FETCH: 1_048_576.0, PERCENT: 1100.0}
    for quotas in (FINE, border, {PRODUCE: UNLIMITED, PERCENT: UNLIMITED}):
        assert found(QuotaEntry(entity=ALICE, quotas=quotas), address) == []


@pytest.mark.parametrize(
    ("quotas", "threads", "severity", "check"),
    [
        ({PRODUCE: 16_383.0}, None, "warning", "below-one-batch"),
        ({FETCH: 1_048_575.0}, None, "warning", "below-one-fetch"),
        ({PRODUCE: 0.0}, None, "error", "invalid-value"),
        ({PERCENT: -1.0}, None, "error", "invalid-value"),
        ({PRODUCE: float("nan")}, None, "error", "invalid-value"),
        ({PRODUCE: 1_000_000.5}, None, "error", "invalid-value"),
        ({PERCENT: 1100.5}, None, "note", "above-capacity"),
        ({"connection_creation_rate": 5.0}, None, "error", "ignored-key"),
        ({PERCENT: 450.0}, 4, "warning", "above-capacity"),
    ],
)
def test_odd_values(quotas: Mapping[str, float], threads: int | None, severity: str, check: str) -> None:
    assert found(QuotaEntry(entity=ALICE, quotas=quotas), threads=threads) == [(severity, check, "user alice")]
    assert found(entry(ALICE, **{PERCENT: 1500.0}), threads=16) == []


def test_quotas_that_nobody_or_not_everybody_gets() -> None:
    entries = (
        entry(Entity.of(user=None), **{PRODUCE: 1e7}),
        entry(Entity.of(client_id="app"), **{PRODUCE: 1e7}),
        entry(Entity.of(user=None, client_id=None), **{PRODUCE: 1e7}),
    )
    assert found(*entries) == [
        ("note", "partly-shadowed", "default user"),
        ("warning", "shadowed", "client-id app"),
    ]


@pytest.mark.parametrize(
    "names", [("Alice", "alice"), ("a b", "a%20b"), ("caf\u00e9", "cafe\u0301"), ("a b", "a  b"), ("x", "\uff58")]
)
def test_names_that_are_easily_confused(names: tuple[str, str]) -> None:
    entries = [entry(Entity.of(user=name), **{PRODUCE: 1e7}) for name in names]
    assert [check for _, check, _ in found(*entries)] == ["similar-names"]
    clients = [entry(Entity.of(client_id=name), **{PRODUCE: 1e7}) for name in names]
    assert [check for _, check, _ in found(*clients)] == ["similar-names"]
    assert found(entries[0], clients[1]) == []


@pytest.mark.parametrize("name", ["User:alice", "<default>", " alice", "alice\n", "a\u200bb"])
def test_names_that_no_client_is_likely_to_have(name: str) -> None:
    assert [check for _, check, _ in found(entry(Entity.of(user=name), **{PRODUCE: 1e7}))] == ["odd-name"]


@pytest.mark.parametrize(
    ("one", "other"), [("localhost", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1"), ("10.0.0.1", "::ffff:10.0.0.1")]
)
def test_one_address_under_two_names(one: str, other: str) -> None:
    entries = [entry(Entity.of(ip=name), connection_creation_rate=5) for name in (one, other)]
    checks = {check for _, check, _ in found(*entries)}
    assert "same-address" in checks
    assert checks <= {"same-address", "shadowed"}
    assert found(entries[0], entry(Entity.of(ip="10.0.0.2"), connection_creation_rate=5)) == []


THROTTLE = ("topic t", "leader.replication.throttled.replicas", "*")


def of_facts(facts: ClusterInfo, *entries: QuotaEntry) -> list[Finding]:
    return list(odd_cluster(facts, entries))


def test_replication_throttles_are_odd_unless_partitions_are_being_moved() -> None:
    (finding,) = of_facts(ClusterInfo(replication_throttles=(THROTTLE,), reassigning=False))
    assert (finding.severity, finding.check, finding.about) == (Severity.WARNING, "replication-throttle", "topic t")
    assert finding.remedy == (
        "kafka-configs --alter --entity-type topics --entity-name t "
        "--delete-config leader.replication.throttled.replicas"
    )
    assert of_facts(ClusterInfo(replication_throttles=(THROTTLE,), reassigning=True)) == []
    (unsure,) = of_facts(ClusterInfo(replication_throttles=(THROTTLE,)))
    assert "not known" in unsure.sentence


def test_keys_that_a_broker_is_too_old_for() -> None:
    facts = ClusterInfo(too_old=("1", "2"))
    assert of_facts(facts, entry(ALICE, **{PRODUCE: 1e7})) == []
    (finding,) = of_facts(facts, entry(ALICE, **FINE))
    assert (finding.severity, finding.check, finding.entity) == (Severity.ERROR, "broker-too-old", ALICE)
    assert "broker 1, 2 is older" in finding.sentence
    assert of_facts(ClusterInfo(), entry(ALICE, **FINE)) == []


def test_callbacks_and_empty_znodes() -> None:
    facts = ClusterInfo(
        callbacks={"1": "io.strimzi.Quotas"}, empty_znodes=("/config/users/<default>", "/config/users/alice")
    )
    assert [(finding.severity.value, finding.check, finding.about) for finding in of_facts(facts)] == [
        ("warning", "quota-callback", "broker 1"),
        ("warning", "empty-znode", "/config/users/<default>"),
        ("note", "empty-znode", "/config/users/alice"),
    ]


def test_a_sound_store_ends_with_exit_code_0(tmp_path: Path) -> None:
    store = new_store(tmp_path, {ALICE: FINE})
    code, out, err = run_cli("doctor", "--store", store)
    assert (code, out) == (0, "")
    assert err == (f"note: a local store: no brokers to check\nnote: no problem among 1 entity in {store}\n")


def test_findings_are_listed_worst_first(tmp_path: Path) -> None:
    store = new_store(
        tmp_path,
        {
            Entity.of(user="Alice"): {PERCENT: 5000.0},
            ALICE: {PRODUCE: 1000.0},
            Entity.of(ip="127.0.0.1"): {"connection_creation_rate": 5.0},
            Entity.of(ip="localhost"): {"connection_creation_rate": 5.0},
        },
    )
    code, out, _ = run_cli("doctor", "--store", store, "--output", "json")
    document = json.loads(out)
    assert (code, document["schema"], document["entities"]) == (1, "kafka-quotas.doctor/1", 4)
    assert [(each["severity"], each["check"]) for each in document["findings"]] == [
        ("error", "same-address"),
        ("warning", "below-one-batch"),
        ("warning", "similar-names"),
        ("note", "above-capacity"),
    ]
    assert document["findings"][1]["entity"] == {"user": "alice"}
    assert set(document["findings"][0]) == {"severity", "check", "about", "entity", "finding", "remedy"}


def test_warnings_alone_are_no_failure(tmp_path: Path) -> None:
    store = new_store(tmp_path, {ALICE: {PRODUCE: 1000.0}})
    out = printed("doctor", "--store", store, "--output", "csv")
    assert out.splitlines()[0] == "severity,check,about,user,client_id,ip,topic,broker,group,defaults,finding,remedy"
    assert out.splitlines()[1].startswith("warning,below-one-batch,user alice,")


def test_groups_of_a_policy_file_are_examined_even_if_they_do_not_fit_together(tmp_path: Path) -> None:
    store = new_store(tmp_path, {ALICE: FINE})
    policy = tmp_path / "policy.toml"
    policy.write_text('[[group]]\nname = "a"\nmembers = [{ user = "alcie" }]\n', encoding="utf-8")
    found = json.loads(printed("doctor", "--store", store, "--policy", str(policy), "--output", "json"))["findings"]
    assert [(each["check"], each["entity"]) for each in found] == [("member-unseen", {"group": "a"})]
    assert found[0]["finding"] == f"its member user alcie fits nobody in {store}"
    policy.write_text('[[group]]\nname = "a/b"\n[[group]]\nname = "c/d"\n', encoding="utf-8")
    code, out, _ = run_cli("doctor", "--store", store, "--policy", str(policy), "--output", "json")
    assert (code, [each["about"] for each in json.loads(out)["findings"]]) == (1, ["group a/b", "group c/d"])
