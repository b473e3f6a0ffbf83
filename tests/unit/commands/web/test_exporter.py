"""The exporter's looks and metrics: what is served while everything is there, and while something is away."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.support.core.virtual_clock import VirtualClock
from tests.support.daemon.statuses import bucket_row, daemon_status, fleet_row
from tests.support.stores.stored_quotas import new_store, store_quotas

from kafka_quotas.commands.declarative.apply import DesiredState
from kafka_quotas.commands.insight import usage
from kafka_quotas.commands.insight.usage import UsageSource
from kafka_quotas.commands.web.exporter import LookState, QuotaExporter
from kafka_quotas.core.errors import KafkaQuotasError, StoreUnreachableError, UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement import QUOTA_FAMILIES, MetricsChoice, exposition
from kafka_quotas.enforcement.monitoring.endpoints import families
from kafka_quotas.enforcement.telemetry.status import WorkerRow
from kafka_quotas.stores import Store, open_store

PRODUCE, FETCH, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
ROOT = Path(__file__).parents[4]
BROKER = "http://broker-1:7071/metrics"
ANSWER = """
kafka_server_quota_byte_rate{resource="Produce",user="bob",clientId=""} 1500000
kafka_server_quota_throttle_time{resource="Produce",user="bob",clientId=""} NaN
kafka_server_quota_byte_rate{resource="Fetch",user="alice",clientId=""} 3600000
kafka_server_quota_throttle_time{resource="Fetch",user="alice",clientId=""} 45
kafka_server_quota_mutation_rate{resource="ControllerMutation",user="alice",clientId=""} 4
kafka_server_produce_byte_rate{broker="1",user="bob",client_id="",mode="broker"} 9
kafka_server_produce_byte_rate{broker="1",user="bob",client_id="",mode="kafka"} 9
"""
"""What a broker's exporter says, and what a daemon and another exporter of ours would."""
STORED: Mapping[Entity, Mapping[str, float]] = {
    Entity.of(user=None): {PRODUCE: 2e6},
    Entity.of(client_id="nightly"): {PRODUCE: 1e7},
    Entity.of(user="alice"): {FETCH: 3e6, MUTATIONS: 5.0},
    Entity.of(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
}


class Bench:
    """A store, answers of brokers' exporters, a file, and a clock that moves only when told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = new_store(folder, STORED)
        self.answers: dict[str, str | None] = {BROKER: ANSWER}
        self.clock = VirtualClock(1_700_000_000_000)
        self.file = folder / "quotas.yaml"
        self.file.write_text("- {entity: {user: alice}, quotas: {consumer_byte_rate: 4000000}}\n")
        self.is_away = False
        self.reports: list[tuple[str, str | None]] = []
        monkeypatch.setattr(usage, "_text", self._answer)

    def _answer(self, url: str) -> str:
        answer = self.answers[url]
        if answer is None:
            raise KafkaQuotasError(f"no metrics from {url}")
        return answer

    def _open(self) -> Store:
        if self.is_away:
            raise StoreUnreachableError("no broker answers")
        return open_store(self.url)

    def exporter(self, *, files: bool = False, policy: Path | None = None, **choice: Any) -> QuotaExporter:
        return QuotaExporter(
            self._open,
            source=UsageSource(metrics_urls=tuple(self.answers)) if self.answers else None,
            desired=DesiredState(paths=[str(self.file)], policy=policy) if files else None,
            choice=MetricsChoice(**choice),
            clock=self.clock,
        )

    def report(self, look: str, state: LookState) -> None:
        self.reports.append((look, None if state.error is None else state.error.message))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def served(exporter: QuotaExporter) -> dict[str, dict[str, float]]:
    """Every series but the process's own, by its metric and its labels."""
    pieces = exposition(exporter.families())
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            text = end.value.decode()
            break
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if value)
            assert series not in found.setdefault(sample.name, {}), sample
            found[sample.name][series] = sample.value
    return found


BOB = "broker=broker-1:7071,mode=broker,user=bob"
ALICE = "broker=broker-1:7071,mode=broker,user=alice"
SUCCESS = "kafka_quotas_look_success"


def test_limits_rates_and_what_nobody_gets(bench: Bench) -> None:
    exporter = bench.exporter(files=True)
    exporter.look(bench.report)
    found = served(exporter)
    assert bench.reports == []
    assert found["kafka_quotas_entity_limit"] == {
        "entity=default user,key=producer_byte_rate,user=<default>": 2e6,
        "entity=user alice,key=consumer_byte_rate,user=alice": 3e6,
        "entity=user alice,key=controller_mutation_rate,user=alice": 5.0,
        "entity=ip 10.0.0.1,ip=10.0.0.1,key=connection_creation_rate": 5.0,
    }
    assert found["kafka_quotas_entity_limit_without_effect"] == {
        "client_id=nightly,entity=client-id nightly,key=producer_byte_rate": 1e7
    }
    assert found["kafka_quotas_limits"] == {"": 4.0}
    assert found["kafka_quotas_without_effect"] == {"": 1.0}
    assert found["kafka_server_produce_byte_rate"] == {BOB: 1.5e6}
    assert found["kafka_server_produce_byte_rate_limit"] == {BOB: 2e6}
    assert found["kafka_server_produce_quota_utilization"] == {BOB: 75.0}
    assert found["kafka_server_fetch_quota_utilization"] == {ALICE: pytest.approx(120.0)}
    assert found["kafka_server_fetch_throttle_time"] == {ALICE: 45.0}
    assert found["kafka_server_controllermutation_mutation_rate"] == {ALICE: 4.0}
    assert found["kafka_server_controllermutation_tokens_limit"] == {ALICE: 5.0}
    assert not {"kafka_server_controllermutation_tokens", "kafka_server_controllermutation_quota_utilization"} & set(
        found
    )
    # 3 MB/s is stored, 4 declared; the other four limits are not declared.
    assert (found["kafka_quotas_drift"], found["kafka_quotas_drift_undeclared"]) == ({"": 1.0}, {"": 4.0})
    assert found[SUCCESS] == {"look=store": 1.0, f"address={BROKER},look=metrics": 1.0, "look=files": 1.0}


def test_an_unlimited_bucket_has_no_utilization(bench: Bench) -> None:
    store_quotas(bench.url, {Entity.of(user="bob"): {PRODUCE: 2.0**63}})
    exporter = bench.exporter()
    exporter.look()
    found = served(exporter)
    assert found["kafka_server_produce_byte_rate"] == {BOB: 1.5e6}
    assert "kafka_server_produce_quota_utilization" not in found


def test_before_the_first_look_everything_is_unknown(bench: Bench) -> None:
    found = served(bench.exporter(files=True))
    assert found["kafka_quotas_store_reachable"] == {"": 0.0}
    assert set(found[SUCCESS].values()) == {0.0}
    assert not {"kafka_quotas_drift", "kafka_quotas_without_effect", "kafka_server_produce_byte_rate"} & set(found)


def test_a_store_that_is_away_from_the_start_is_a_metric(bench: Bench) -> None:
    bench.is_away = True
    exporter = bench.exporter(files=True)
    exporter.look(bench.report)
    assert served(exporter)[SUCCESS]["look=store"] == 0.0
    assert served(exporter)[SUCCESS]["look=files"] == 0.0
    assert bench.reports == [
        ("store", "no broker answers"),
        ("files", "nothing to compare with: the store was not read yet"),
    ]
    bench.is_away = False
    exporter.look(bench.report)
    assert served(exporter)["kafka_quotas_store_reachable"] == {"": 1.0}
    assert bench.reports[2:] == [("store", None), ("files", None)]


def test_a_store_that_goes_away_leaves_its_limits_and_their_age(bench: Bench) -> None:
    exporter = bench.exporter()
    exporter.look()
    before = served(exporter)
    bench.is_away = True
    bench.clock.advance(90_000)
    for _ in range(2):
        exporter.look(bench.report)
    found = served(exporter)
    assert bench.reports == [("store", "no broker answers")]
    assert found["kafka_quotas_entity_limit"] == before["kafka_quotas_entity_limit"]
    assert found["kafka_quotas_store_age_seconds"] == {"": 90.0}
    assert found["kafka_quotas_look_age_seconds"] == {"look=store": 90.0, f"address={BROKER},look=metrics": 0.0}
    assert found["kafka_quotas_look_failures_total"] == {"look=store": 2.0, f"address={BROKER},look=metrics": 0.0}
    assert found["kafka_server_produce_quota_utilization"] == {BOB: 75.0}


def test_rates_of_a_broker_that_is_away_are_left_out_and_those_of_others_stay(bench: Bench) -> None:
    other = "http://user:secret@broker-2:7071/metrics"
    bench.answers[other] = ANSWER
    exporter = bench.exporter()
    exporter.look()
    assert len(served(exporter)["kafka_server_produce_byte_rate"]) == 2
    bench.answers[BROKER] = None
    exporter.look()
    found = served(exporter)
    assert found["kafka_server_produce_byte_rate"] == {BOB.replace("1:", "2:"): 1.5e6}
    public = other.replace("user:secret@", "")
    assert found[SUCCESS] == {
        "look=store": 1.0,
        f"address={BROKER},look=metrics": 0.0,
        f"address={public},look=metrics": 1.0,
    }


def test_two_sources_of_one_broker_give_its_series_once(bench: Bench) -> None:
    named = ANSWER.replace('user="', 'broker="7",user="')
    bench.answers = {BROKER: named, "http://other/metrics": named}
    exporter = bench.exporter()
    exporter.look()
    assert served(exporter)["kafka_server_produce_byte_rate"] == {"broker=7,mode=broker,user=bob": 1.5e6}


def test_a_broken_file_keeps_the_drift_found_last(bench: Bench) -> None:
    exporter = bench.exporter(files=True)
    exporter.look()
    bench.file.write_text("- {entity: {usr: alice}}\n")
    exporter.look(bench.report)
    found = served(exporter)
    assert found["kafka_quotas_drift"] == {"": 1.0}
    assert found[SUCCESS]["look=files"] == 0.0
    ((look, message),) = bench.reports
    assert (look, str(bench.file) in str(message)) == ("files", True)


@pytest.mark.parametrize(("in_policy", "drift"), [(None, 3.0), (1_000_000, 0.0), (900_000, 1.0)])
def test_groups_other_than_declared_are_drift(
    bench: Bench, tmp_path: Path, in_policy: int | None, drift: float
) -> None:
    group = "{name: shop, members: [{user: bob}], producer_byte_rate: 1000000}"
    entry = "{entity: {user: alice}, quotas: {consumer_byte_rate: 3000000}}"
    bench.file.write_text(f"entries:\n  - {entry}\ngroup:\n  - {group}\n")
    policy = tmp_path / "policy.toml"
    section = f'[[group]]\nname = "shop"\nmembers = [{{ user = "bob" }}]\nproducer_byte_rate = {in_policy}\n'
    policy.write_text(section)
    exporter = bench.exporter(files=True, policy=None if in_policy is None else policy)
    exporter.look(bench.report)
    assert bench.reports == []
    assert served(exporter)["kafka_quotas_drift"] == {"": drift}


def test_wrong_usage_at_the_first_look_is_an_error(bench: Bench) -> None:
    bench.file.unlink()
    with pytest.raises(UsageError, match="cannot read"):
        bench.exporter(files=True).look()


def test_a_defect_in_a_look_is_a_metric_as_well(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = bench.exporter()
    monkeypatch.setattr(usage, "_text", lambda _: 1 / 0)
    exporter.look(bench.report)
    ((look, message),) = bench.reports
    assert (look, "ZeroDivisionError: division by zero" in str(message)) == (f"metrics {BROKER}", True)


def test_series_are_bounded_and_what_is_left_out_is_counted(bench: Bench) -> None:
    many = {Entity.of(user=f"u{number:04}"): {PRODUCE: 1000.0} for number in range(1200)}
    store_quotas(bench.url, many)
    bench.answers[BROKER] = "\n".join(
        f'kafka_server_quota_byte_rate{{resource="Produce",user="u{number:04}",clientId=""}} {number}'
        for number in range(1200)
    )
    exporter = bench.exporter(top=3, users=frozenset({"u0007", "zoe"}))
    exporter.look()
    found = served(exporter)
    users = sorted(re.findall(r"user=(\w+)", " ".join(found["kafka_server_produce_byte_rate"])))
    assert users == ["u0007", "u1197", "u1198", "u1199"]
    assert len(found["kafka_quotas_entity_limit"]) == 1000
    # 1,200 users, a default, alice's two, an address; and the client-id's, which has a series of the other kind.
    assert found["kafka_quotas_left_out"] == {"of=buckets": 1196.0, "of=entity_limits": 204.0}
    assert found["kafka_quotas_limits"] == {"": 1204.0}


def names_of(*all_families: Iterator[Any]) -> set[str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name for each in all_families for family in each
    }


def exported(bench: Bench) -> set[str]:
    exporter = bench.exporter(files=True)
    exporter.look()
    return names_of(exporter.families())


def daemons() -> set[str]:
    """The names of all metrics of a daemon with everything on."""
    worker = WorkerRow(number=1, pid=7, connections=3, starts=2)
    status = daemon_status(
        buckets=tuple(bucket_row(quota=quota) for quota in QUOTA_FAMILIES),
        fleet=fleet_row(refused={"unsigned": 4}),
        workers=(worker,),
        state_age_ms=1,
        counters={**daemon_status().counters, "buckets_evicted": 0, "events_logged": 0, "events_dropped": 0},
    )
    return names_of(families(status, is_ready=True))


def test_the_page_on_metrics_names_every_one_of_the_exporter(bench: Bench) -> None:
    section = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8").split("\n## The exporter\n")[1]
    rows = re.findall(r"^\| `(kafka_\w+)`(?: by ([^|]+))? \|", section, re.MULTILINE)
    own = {name for name, _ in rows}
    assert exported(bench) - daemons() == own
    exporter = bench.exporter(files=True)
    exporter.look()
    labels = {family.name: set(family.samples[0].labels) for family in exporter.families() if family.samples}
    for name, told in rows:
        assert set(re.findall(r"`(\w+)`", told)) == labels[name.removesuffix("_total")], name


PROMETHEUS = yaml.safe_load((ROOT / "examples" / "daemon" / "prometheus-alerts.yml").read_text(encoding="utf-8"))
DASHBOARD = (ROOT / "examples" / "daemon" / "grafana-dashboard.json").read_text(encoding="utf-8")


def test_dashboards_and_alerts_name_series_of_a_daemon_or_an_exporter(bench: Bench) -> None:
    expressions = [rule["expr"] for group in PROMETHEUS["groups"] for rule in group["rules"]]
    named = set(re.findall(r"\bkafka_(?:server|quotas)_\w+", " ".join([*expressions, DASHBOARD])))
    assert named - daemons() - exported(bench) == set()
    groups = {group["name"]: " ".join(rule["expr"] for rule in group["rules"]) for group in PROMETHEUS["groups"]}
    of_exporter = set(re.findall(r"\bkafka_(?:server|quotas)_\w+", groups["kafka-quotas-exporter"]))
    assert {name for name in of_exporter if not name.startswith("kafka_server_request")} <= exported(bench)


def test_what_a_daemon_and_an_exporter_have_alike_has_the_same_labels(bench: Bench) -> None:
    exporter = bench.exporter(files=True)
    exporter.look()
    status = daemon_status(buckets=tuple(bucket_row(quota=quota) for quota in QUOTA_FAMILIES))
    ours, theirs = (
        {family.name: set(family.samples[0].labels) for family in each if family.samples}
        for each in (exporter.families(), families(status, is_ready=True))
    )
    both = set(ours) & set(theirs)
    assert len(both) > 10
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}


_SERVED = """
import os, signal, sys
from kafka_quotas.commands.web.exporter import QuotaExporter, run_exporter
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.enforcement import Address, MetricsChoice
from kafka_quotas.stores import open_store

def serving(address):
    print("prometheus_client.metrics" in sys.modules, "prometheus_client.core" in sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)

made = QuotaExporter(
    lambda: open_store(sys.argv[1]), source=None, desired=None, choice=MetricsChoice(), clock=SystemClock()
)
address = Address(host="127.0.0.1", port=0)
run_exporter(made, address, interval_s=60, report=lambda *_: None, serving=serving, on_defect=lambda _: None)
"""


def test_the_library_of_metrics_is_loaded_before_anybody_can_ask(tmp_path: Path) -> None:
    """It imports itself in a circle, so that two threads that load it at once find half of it."""
    command = [sys.executable, "-c", _SERVED, new_store(tmp_path, STORED)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "True True\n"
