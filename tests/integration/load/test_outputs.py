"""What a run gives to other programs while it runs and after it: OTLP to a receiver, JUnit XML to CI."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.support.brokers.java_process import free_port
from tests.support.processes.run_cli import run_cli

RUN = ("load-test", "produce", "--embedded", "--rate", "200rec/s", "--warmup", "1s", "--quota-window-num", "1")


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, str, ExportMetricsServiceRequest]]]]:
    """An OTLP receiver that reads requests by OpenTelemetry's own definitions.

    An empty one is never refused.
    """
    seen: list[tuple[str, str, ExportMetricsServiceRequest]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = json_format.Parse(body, ExportMetricsServiceRequest())
            seen.append((self.path, self.headers["Authorization"], request))
            self.send_response(status if request.resource_metrics else 200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def test_a_receiver_and_ci_get_what_the_run_did(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20abc")
    report = tmp_path / "junit.xml"
    with receiver() as (url, seen):
        options = ("--otlp", url, "--junit", str(report), "--duration", "6s", "--output", "json")
        code, out, err = run_cli(*RUN, *options)

    assert (code, err) == (0, "PASS: 3 checks met\n")
    document = json.loads(out)
    assert {(path, token) for path, token, _ in seen} == {("/v1/metrics", "Bearer abc")}
    assert not seen[0][2].resource_metrics
    assert len(seen) >= 3
    metrics = {each.name: each for each in seen[-1][2].resource_metrics[0].scope_metrics[0].metrics}
    acknowledged = metrics["kafka_quotas.load_test.acknowledged"].sum.data_points[0].as_int
    assert acknowledged == pytest.approx(document["entities"][0]["records"]["acked"], abs=100)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    assert len(cases) == len(document["judgements"])


def test_a_receiver_that_refuses_is_a_warning_and_one_that_is_not_there_an_error() -> None:
    with receiver(status=503) as (url, _):
        code, _, err = run_cli(*RUN, "--duration", "2s", "--otlp", f"{url}/v1/metrics")
    assert code == 0
    # Once at the end, and on a busy machine before that.
    assert re.search(r"metrics could not be pushed \d+ times: .*HTTP 503", err), err

    code, _, err = run_cli(*RUN, "--otlp", f"http://127.0.0.1:{free_port()}")
    assert (code, "can't push metrics to" in err) == (1, True)
    assert run_cli(*RUN, "--otlp", "collector:4318")[0] == 1
