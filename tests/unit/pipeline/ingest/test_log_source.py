"""Which logs the data source reads, without a session: copies once, and none that was deleted for ever."""

import gzip
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql.types import StructType
from tests.support.pipeline.logs import log_text

from kafka_quotas.pipeline.ingest import log_source
from kafka_quotas.pipeline.ingest.log_source import KafkaRequestLog

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
