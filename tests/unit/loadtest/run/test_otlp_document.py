"""The state of a run as OTLP: read by OpenTelemetry's own definitions, and true."""

import json
from fractions import Fraction
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.support.load.recordings import MS, recorded

from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run.otlp_document import BOUNDS_S, PREFIX, otlp_document
from kafka_quotas.loadtest.run.runner import ClientProgress, RunProgress

NOW_NS = 1_700_000_010_000_000_000


def progress() -> RunProgress:
    app, flood = recorded("app", user="alice", quota=1e6, rate=Fraction(10)), recorded(None, workload=Workload.REQUESTS)
    app.recorder.sent = 7
    app.recorder.failed("TIMED_OUT", 2)
    for response_ms, count in ((1, 3), (40, 1), (90_000, 1)):
        app.recorder.latency(intended_ns=0, sent_ns=0, acked_ns=response_ms * MS, count=count)
    clients = tuple(
        ClientProgress(
            entity=client.entity,
            rate=2.5,
            acked=5,
            waiting=2,
            throttle_count=3,
            throttle_sum_ms=1500.0,
            recorder=client.recorder,
        )
        for client in (app, flood)
    )
    return RunProgress(elapsed_s=10.0, total_s=20.0, warming_up=False, entities=clients)


def parsed() -> dict[str, Any]:
    text = json.dumps(otlp_document(progress(), now_ns=NOW_NS, title="mine"))
    request = json_format.Parse(text, ExportMetricsServiceRequest())
    (resource,) = request.resource_metrics
    labels = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert labels == {"service.name": "kafka-quotas", "load_test": "mine"}
    return {metric.name.removeprefix(f"{PREFIX}."): metric for metric in resource.scope_metrics[0].metrics}


def test_counts_are_cumulative_since_the_start_of_the_load() -> None:
    metrics = parsed()

    sent = metrics["sent"].sum
    assert (sent.is_monotonic, sent.aggregation_temporality) == (True, 2)
    assert [point.as_int for point in sent.data_points] == [7, 0]
    assert {(point.start_time_unix_nano, point.time_unix_nano) for point in sent.data_points} == {
        (1_700_000_000_000_000_000, NOW_NS)
    }
    assert {each.key: each.value.string_value for each in sent.data_points[0].attributes} == {
        "client_id": "app",
        "user": "alice",
        "does": "produce",
    }
    assert metrics["failed"].sum.data_points[0].as_int == 2
    assert (metrics["throttle.time"].unit, metrics["throttle.time"].sum.data_points[0].as_double) == ("s", 1.5)


def test_rates_have_the_unit_of_their_quota() -> None:
    metrics = parsed()

    assert (metrics["rate.bytes"].unit, metrics["rate.requests"].unit) == ("By/s", "{request}/s")
    assert [point.as_double for point in metrics["quota.bytes"].gauge.data_points] == [1e6]
    assert "quota.requests" not in metrics
    assert len(metrics["rate.requests"].gauge.data_points) == 1


def test_latencies_are_histograms_in_seconds() -> None:
    point, empty = parsed()["response"].histogram.data_points

    assert (point.count, empty.count, len(point.bucket_counts)) == (5, 0, len(BOUNDS_S) + 1)
    assert list(point.explicit_bounds) == list(BOUNDS_S)
    assert [(at, count) for at, count in enumerate(point.bucket_counts) if count] == [(0, 3), (5, 1), (15, 1)]
    assert 90.0 < point.sum < 90.1
