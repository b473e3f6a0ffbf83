"""`kafka-quotas exporter` beside a real broker with the JMX exporter: rates, a broker that goes away, and the end."""

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.brokers.java_process import free_port
from tests.support.brokers.maven import JMX_EXPORTER, jars
from tests.support.brokers.probes import kafka_brokers
from tests.support.brokers.servers import Kafka, kafka_4
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.processes.awaiting import await_true
from tests.support.processes.logged_process import LoggedProcess
from tests.support.stores.stored_quotas import store_quotas

from kafka_quotas.core.model.entity import Entity

pytestmark = pytest.mark.integration
RULES = Path(__file__).parents[3] / "examples" / "prometheus" / "jmx-exporter.yml"
QUOTA = 500_000.0
ENDS_IN_S = 10.0


@pytest.fixture(scope="module")
def measured() -> Iterator[tuple[Kafka, str]]:
    """A broker of our own whose quota metrics the shipped rules export, and their address."""
    (agent,) = jars(JMX_EXPORTER).glob("*.jar")
    port = free_port()
    with kafka_4(quick_start=True, options=[f"-javaagent:{agent}=127.0.0.1:{port}:{RULES}"]) as kafka:
        quotas = {
            Entity.of(client_id="greedy"): {"producer_byte_rate": QUOTA},
            Entity.of(user="alice", client_id="app"): {"consumer_byte_rate": 1e6},
            Entity.of(client_id="app"): {"consumer_byte_rate": 2e6},
            Entity.of(user=None): {"consumer_byte_rate": 3e6},
        }
        store_quotas(f"kafka://{kafka.bootstrap}", quotas)
        yield kafka, f"http://127.0.0.1:{port}/metrics"


class Exporter:
    """A running exporter."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.logged = LoggedProcess(process)
        match = re.search(r"http://\S+/metrics", self.logged.wait_for_log("metrics at"))
        assert match is not None
        self.url = match[0]

    def value(self, metric: str, **labels: str) -> float | None:
        """The figure of the only series with these labels."""
        with urllib.request.urlopen(self.url, timeout=5) as answer:  # never waits for the broker
            text = answer.read().decode()
        found = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == metric and labels.items() <= sample.labels.items()
        ]
        assert len(found) < 2, (metric, labels)
        return found[0] if found else None

    def end(self) -> int:
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(ENDS_IN_S)
        self.logged.close_log(ENDS_IN_S)
        return code


@contextmanager
def running(*options: str) -> Iterator[Exporter]:
    command = [sys.executable, "-m", "kafka_quotas", "exporter", "--listen", "0", "--interval", "1", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Exporter(process)
        finally:
            process.kill()


def test_a_broker_that_throttles_goes_away_and_comes_back(measured: tuple[Kafka, str], tmp_path: Path) -> None:
    kafka, metrics = measured
    file = tmp_path / "quotas.yaml"
    file.write_text("- {entity: {client-id: greedy}, quotas: {producer_byte_rate: 600000}}\n")
    named = (str(file), "--bootstrap-server", kafka.bootstrap, "--prometheus", metrics)
    load = threading.Thread(
        target=acknowledgements, args=(kafka.bootstrap, "load", "greedy"), kwargs={"duration_s": 20.0}
    )
    load.start()
    try:
        with running(*named) as exporter:

            def utilization() -> float:
                return exporter.value("kafka_server_produce_quota_utilization", client_id="greedy", user="") or 0.0

            def throttle_ms() -> float:
                return exporter.value("kafka_server_produce_throttle_time", client_id="greedy") or 0.0

            await_true(lambda: 80 < utilization() < 150 and throttle_ms() > 0, "the producer uses its limit")
            assert exporter.value("kafka_server_produce_byte_rate_limit", client_id="greedy", mode="broker") == QUOTA
            lost = exporter.value("kafka_quotas_entity_limit_without_effect", entity="client-id app")
            assert lost == 2e6
            assert exporter.value("kafka_quotas_without_effect") == 1
            await_true(lambda: exporter.value("kafka_quotas_drift") == 1, "the file's limit is another one")
            load.join()

            kafka.servers[0].kill()
            await_true(lambda: exporter.value("kafka_quotas_look_success", look="store") == 0, "the store is lost")
            await_true(lambda: exporter.value("kafka_quotas_look_success", look="metrics") == 0, "the rates are lost")
            assert exporter.value("kafka_quotas_store_reachable") == 0
            assert exporter.value("kafka_server_produce_byte_rate", client_id="greedy") is None
            assert exporter.value("kafka_quotas_entity_limit", entity="client-id greedy") == QUOTA
            assert exporter.logged.lines("warning: store: ")

            with running(*named) as late:  # it starts while the broker is away
                assert late.value("kafka_quotas_store_reachable") == 0
                kafka.servers[0].start_again()
                kafka.servers[0].wait_ready(lambda: kafka_brokers(kafka.bootstrap) == 1)
                for each in (exporter, late):
                    await_true(
                        lambda each=each: each.value("kafka_quotas_store_reachable") == 1,  # type: ignore[misc]
                        "the store is back",
                    )
                    assert each.value("kafka_quotas_entity_limit", entity="client-id greedy") == QUOTA
                assert late.end() == 0
            assert exporter.end() == 0
            assert not exporter.logged.lines("Traceback")
    finally:
        load.join()


def test_what_the_exporter_serves_is_what_top_reads(measured: tuple[Kafka, str], tmp_path: Path) -> None:
    """The names are those of daemons, so that `top` can ask an exporter, which logs in, in place of all brokers."""
    kafka, metrics = measured
    acknowledgements(kafka.bootstrap, "load", "greedy", duration_s=3.0)
    login = tmp_path / "admin.properties"
    login.write_text("".join(f"{name}={value}\n" for name, value in kafka.client_properties("admin").items()))
    secured = ("--bootstrap-server", kafka.sasl_bootstrap, "--command-config", str(login))
    with running(*secured, "--prometheus", metrics) as exporter:
        await_true(
            lambda: exporter.value("kafka_server_produce_byte_rate", client_id="greedy") is not None, "a rate is there"
        )
        command = [sys.executable, "-m", "kafka_quotas", "top", "--once", "--bootstrap-server", kafka.bootstrap]
        asked = [*command, "--prometheus", exporter.url, "--output", "csv", "--columns", "client_id,key"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120)
    assert "greedy,producer_byte_rate" in done.stdout, done.stdout
