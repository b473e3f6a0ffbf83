"""How the tasks of an ingest are spread over Spark's partitions, and for how much Spark starts."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.pipeline.ingested_folder import broker_log
from tests.support.pipeline.logs import log_text
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.metric_names import BUILT_IN
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.formats.lines import RemoteFile
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat
from kafka_quotas.pipeline.ingest import job
from kafka_quotas.pipeline.ingest.plan import PIECE_BYTES
from kafka_quotas.pipeline.ingest.spark_engine import partitions


def task(size: int, *, start: int = 0, end: int | None = None) -> IngestTask:
    return IngestTask(
        number=0,
        path=RemoteFile(url="s3://logs/1.log", size=size, modified_ms=0),
        input_format=InputFormat.REQUEST_LOG,
        cluster="c",
        broker_id=1,
        zone="UTC",
        names=BUILT_IN,
        ts_ms=0,
        start=start,
        end=end,
    )


def test_small_files_and_pieces_share_partitions_of_the_size_of_sparks_own() -> None:
    assert partitions([task(1_000)] * 3) == 3
    assert partitions([task(1_000)] * 3_000) == 8
    pieces = [task(0, start=number * PIECE_BYTES, end=(number + 1) * PIECE_BYTES) for number in range(500)]
    assert partitions(pieces) == 8 + 500 // 4


@pytest.mark.parametrize("is_short", [True, False])
def test_spark_starts_for_the_size_of_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_short: bool
) -> None:
    asked: list[SparkSettings] = []

    def started(settings: SparkSettings, *_: Any) -> None:
        asked.append(settings)
        raise KafkaQuotasError("no Spark")

    monkeypatch.setattr(job, "started", started)
    monkeypatch.setattr(job, "_SHORT_BYTES", 1 << 20 if is_short else 1)
    log = broker_log(tmp_path, log_text(5))
    argv = ("--out", tmp_path / "data", "--engine", "spark", "--broker-id", 1, "--timezone", "UTC", log)
    assert run_cli("pipeline", "ingest", *map(str, argv))[0] == 1
    assert [each.is_short for each in asked] == [is_short]
