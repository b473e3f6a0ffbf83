"""The data source of logs on a session: the rows of `ingest`, and each line once while logs grow and rotate."""

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.pipeline.logs import SAMPLES, log_text

from kafka_quotas.core.formats.metric_names import MetricNames
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat
from kafka_quotas.pipeline.ingest.ingested_tables import parse_task
from kafka_quotas.pipeline.ingest.log_source import KafkaRequestLog, PrometheusMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("cluster", "broker_id", "ts_ms", "user", "client_id", "quota_type", "bytes", "src_file", "src_offset")
Rows = list[tuple[object, ...]]


def require_log_source(session: "SparkSession", folder: Path) -> None:
    """Compare the rows of packed and of split logs with those of `ingest`, and follow a log that grows and rotates."""
    for name in ("plain", "live"):
        (folder / name).mkdir(parents=True)
    expected: Rows = []
    for broker_id, sample in SAMPLES.items():
        packed = folder / "packed" / str(broker_id)
        packed.mkdir(parents=True)
        (packed / sample.name).write_bytes(sample.read_bytes())
        expected += of_ingest(packed / sample.name, broker_id, "c")
    plain = folder / "plain" / "kafka-request.log"
    lines = log_text(150).replace("500]", "500+0000]").splitlines(keepends=True)
    plain.write_text("".join([*lines[:70], "Completed request:{cut\n", *lines[70:]]))
    expected += of_ingest(plain, -1, "")
    assert len(expected) > 1_000
    session.dataSource.register(KafkaRequestLog)
    events, odd = of_spark(session, folder)
    assert sorted(events) == sorted(expected)
    assert odd == [("Completed request:{cut", str(plain))]
    assert followed(session, folder) == [200, 300, 370, 370, 375, 375]
    scrape = folder / "scrape.prom"
    scrape.write_text('kafka_server_produce_byte_rate{user="al ice"} 5 1795262400000\nno metric\n')
    session.dataSource.register(PrometheusMetrics)
    series = session.read.format("kafka_prometheus_metrics").load(str(scrape))
    assert [
        tuple(row) for row in series.select("ts_ms", "user", "metric", "value").where("odd_line is null").collect()
    ] == [(1795262400000, "al ice", "byte_rate", 5.0)]
    assert series.where("odd_line = 'no metric'").count() == 1


def of_spark(session: "SparkSession", folder: Path) -> tuple[Rows, Rows]:
    """All events that Spark reads in a batch, and the odd lines."""
    source = session.read.format("kafka_request_log").option("cluster", "c").option("timeZone", "UTC")
    packed = source.load(f"{folder}/packed/{{broker_id}}/*.gz")
    plain = session.read.format("kafka_request_log").option("splitBytes", "7000").load(f"{folder}/plain/*.log")
    events = [
        tuple(row)
        for frame in (packed, plain)
        for row in frame.where("odd_line is null").select(*COLUMNS).toLocalIterator()  # few rows at a time
    ]
    odd = [tuple(row) for row in plain.where("odd_line is not null").select("odd_line", "src_file").collect()]
    return events, odd


def followed(session: "SparkSession", folder: Path) -> list[int]:
    """How many rows a stream has after each change of its logs."""
    counts = []
    log, old = folder / "live" / "kafka-request.log", folder / "live" / "kafka-request.log.1"
    for change in ("first", "more", "rotated", "packing", "packed", "nothing"):
        if change == "first":
            log.write_text(log_text(200) + log_text(1, first=200)[:50])
        elif change == "more":
            log.write_text(log_text(300))
        elif change == "rotated":
            log.rename(old)
            with old.open("a") as file:
                file.write(log_text(30, first=300))
            log.write_text(log_text(40, first=1000))
        elif change == "packing":
            packed_half = gzip.compress(old.read_bytes())
            Path(f"{old}.gz").write_bytes(packed_half[: len(packed_half) // 2])
        elif change == "packed":
            Path(f"{old}.gz").write_bytes(gzip.compress(old.read_bytes() + log_text(5, first=330).encode()))
            old.unlink()
        lines = session.readStream.format("kafka_request_log").option("timeZone", "UTC").load(f"{folder}/live/*")
        write = lines.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        write.trigger(once=True).start(f"{folder}/out").awaitTermination()
        rows = session.read.parquet(f"{folder}/out")
        assert rows.where("odd_line is not null").count() == 0
        assert rows.select("ts_ms").distinct().count() == rows.count()
        counts.append(rows.count())
    return counts


def of_ingest(file: Path, broker_id: int, cluster: str) -> Rows:
    """The same events as `ingest` parses them."""
    task = IngestTask(
        number=0,
        path=file,
        input_format=InputFormat.REQUEST_LOG,
        cluster=cluster,
        broker_id=broker_id,
        zone="UTC",
        names=MetricNames(rules=()),
        ts_ms=0,
    )
    return [tuple(getattr(row, name) for name in COLUMNS) for batch in parse_task(task) for row in batch.events]
