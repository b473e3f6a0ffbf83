"""The brokers' own metrics beside a load test: read from an exporter of this test, again and again."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.support.processes.awaiting import await_true

from kafka_quotas.commands.load_test.events import BrokerMetrics
from kafka_quotas.core.errors import KafkaQuotasError, UsageError

_LABELS = 'resource="Produce",user="alice",clientId="app"'


class _Exporter(HTTPServer):
    """An exporter whose byte rate grows with every scrape, until it is told to fail."""

    failing = False
    scrapes = 0


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        exporter = self.server
        assert isinstance(exporter, _Exporter)
        if exporter.failing:
            self.send_error(500)
            return
        exporter.scrapes += 1
        self.send_response(200)
        self.end_headers()
        rate = 1000 * exporter.scrapes
        text = f"kafka_server_quota_byte_rate{{{_LABELS}}} {rate}\nkafka_server_quota_throttle_time{{{_LABELS}}} 12.5\n"
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Keep the test's output clean."""


@pytest.fixture
def exporter() -> Iterator[_Exporter]:
    with _Exporter(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _url(exporter: _Exporter) -> str:
    return f"http://127.0.0.1:{exporter.server_port}/metrics"


def test_metrics_are_read_while_the_run_lasts(exporter: _Exporter) -> None:
    with BrokerMetrics((_url(exporter),), every_s=0.01) as metrics:
        await_true(lambda: len(metrics.samples) >= 3, "three samples are there")
    first, second, *_ = metrics.samples
    kept = len(metrics.samples)

    assert (first.quota_key, first.user, first.client_id) == ("producer_byte_rate", "alice", "app")
    assert (first.observed, second.observed, first.throttle_ms) == (1000, 2000, 12.5)
    assert 0 <= first.t_s <= second.t_s
    assert metrics.warnings == ()
    assert len(metrics.samples) == kept


def test_an_exporter_that_goes_away_is_a_warning(exporter: _Exporter) -> None:
    with BrokerMetrics((_url(exporter),), every_s=0.01) as metrics:
        exporter.failing = True
        await_true(lambda: bool(metrics.warnings), "a warning is there")

    assert "the brokers' metrics could not be read" in metrics.warnings[0]
    assert metrics.samples


def test_an_address_that_can_not_be_read_is_told_before_the_run(exporter: _Exporter) -> None:
    exporter.failing = True
    with pytest.raises(KafkaQuotasError, match="no metrics from"), BrokerMetrics((_url(exporter),)):
        pass
    with pytest.raises(UsageError, match="not an address of metrics"), BrokerMetrics(("broker:7071",)):
        pass


def test_without_an_address_nothing_is_read() -> None:
    with BrokerMetrics(()) as metrics:
        pass

    assert (metrics.samples, metrics.warnings) == ([], ())
