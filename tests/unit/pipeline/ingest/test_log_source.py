"""Which files the data sources read, without a session: copies once, none that was deleted for ever, and formats."""

import gzip
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql.types import StructType
from tests.support.pipeline.logs import log_text

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.ingest import log_source
from kafka_quotas.pipeline.ingest.log_source import DaemonEventLog, KafkaJmxMetrics, KafkaRequestLog, PrometheusMetrics

_STAMPED = log_text(3).replace("500]", "500+0000]")


def source(folder: Path) -> KafkaRequestLog:
    return KafkaRequestLog({"path": f"{folder}/*"})


def test_a_batch_reads_a_log_and_its_packed_copy_once(tmp_path: Path) -> None:
    (tmp_path / "kafka-request.log").write_text(_STAMPED)
    (tmp_path / "kafka-request.log.gz").write_bytes(gzip.compress(_STAMPED.encode()))
    (tmp_path / "other.log").write_text(_STAMPED[600:])
    parts = source(tmp_path).reader(StructType()).partitions()
    assert {str(part.task.path) for part in parts} == {f"{tmp_path}/kafka-request.log", f"{tmp_path}/other.log"}


def test_a_batch_reads_all_logs_that_begin_with_the_same_line(tmp_path: Path) -> None:
    first, rest = _STAMPED.split("\n", 1)
    for name, content in (("one.log", _STAMPED), ("two.log", f"{first}\n"), ("three.log", f"{first}\n{rest[::-1]}")):
        (tmp_path / name).write_text(content)
    (tmp_path / "three.log.gz").write_bytes(gzip.compress(f"{first}\nrubbish\n".encode()))
    parts = source(tmp_path).reader(StructType()).partitions()
    assert len({str(part.task.path) for part in parts}) == 4


def test_the_offset_of_a_stream_drops_a_log_that_is_missing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, clock = tmp_path / "kafka-request.log", mock.Mock(return_value=0.0)
    monkeypatch.setattr(log_source.time, "monotonic", clock)
    (tmp_path / "other.log").write_text(_STAMPED.replace("12:00", "13:00"))
    log.write_text(_STAMPED)
    reader = source(tmp_path).streamReader(StructType())
    both = reader.latestOffset()
    log.unlink()
    clock.return_value = 600.0
    assert reader.latestOffset() == both, "it may come back"
    clock.return_value = 4000.0
    assert len(reader.latestOffset()) == 1
    log.write_text(_STAMPED)
    assert reader.latestOffset() == both


_CHARGE = {
    "v": 1,
    "ts_ms": 1,
    "cluster": "c",
    "broker_id": 2,
    "user": "u",
    "client_id": "",
    "ip": "",
    "bytes": 7,
    "quota_type": "produce",
    "thread_ms": 0,
    "mutations": 0,
    "throttle_ms": 0,
    "api_key": 0,
    "is_exempt": False,
    "connection": 3,
}
_RATE = 'kafka_server_produce_byte_rate{user="u"} 5'
_JOLOKIA = {
    "request": {"mbean": "kafka.server:type=Produce,user=u", "type": "read"},
    "value": {"byte-rate": 5.0},
    "timestamp": 1795262400,
    "status": 200,
}


def rows(source: type[KafkaRequestLog | KafkaJmxMetrics], path: Path) -> list[dict[str, Any]]:
    reader = source({"path": str(path)}).reader(StructType())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]  # type: ignore[arg-type, union-attr]


def test_charges_of_the_daemon_are_events(tmp_path: Path) -> None:
    (log := tmp_path / "events.jsonl").write_text(f'{json.dumps(_CHARGE)}\n{{"v":1}}\n')
    event, odd = rows(DaemonEventLog, log)
    assert (event["broker_id"], event["user"], event["bytes"], event["odd_line"]) == (2, "u", 7, None)
    assert (odd["user"], odd["odd_line"]) == (None, '{"v":1}')
    with pytest.raises(UsageError, match="nothing that kafka_request_log reads") as caught:
        rows(KafkaRequestLog, log)
    assert caught.value.hint == "kafka_quotas_event_log reads it"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (PrometheusMetrics, f"{_RATE} 1795262400000\n"),
        (KafkaJmxMetrics, json.dumps(_JOLOKIA)),
        (PrometheusMetrics, json.dumps(_JOLOKIA)),
    ],
)
def test_series_of_brokers_have_their_times_and_brokers(
    source: type[KafkaJmxMetrics], text: str, tmp_path: Path
) -> None:
    (tmp_path / "7").write_text(text)
    (row,) = rows(source, tmp_path / "{broker_id}")
    found = tuple(row[name] for name in ("ts_ms", "broker", "quota_type", "user", "metric", "value"))
    assert found == (1795262400000, "7", "produce", "u", "byte_rate", 5.0)
    (row,) = rows(source, tmp_path / "*")
    assert row["broker"] == "", "no path tells it"


def test_a_scrape_without_a_time_is_of_the_file_s_and_its_odd_lines_are_kept(tmp_path: Path) -> None:
    (scrape := tmp_path / "2026-11-21T12_00_00Z.prom").write_text(f"{_RATE}\nrubbish\n")
    odd, row = sorted(rows(PrometheusMetrics, tmp_path / "{time}.prom"), key=lambda each: each["odd_line"] is None)
    assert (row["ts_ms"], row["src_file"], odd["odd_line"]) == (1795262400000, str(scrape), "rubbish")


def test_no_stream_follows_scrapes() -> None:
    with pytest.raises(UsageError, match="kafka_jmx_metrics reads whole files, once"):
        KafkaJmxMetrics({"path": "x"}).streamReader(StructType())
