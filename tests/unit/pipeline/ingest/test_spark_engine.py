"""How the tasks of an ingest are spread over Spark's partitions, and what they send the driver."""

import pytest
from tests.support.pipeline.events import events_table, random_events

from kafka_quotas.core.formats.metric_names import BUILT_IN
from kafka_quotas.pipeline.engine import event_ranges
from kafka_quotas.pipeline.engine.event_pieces import unpacked
from kafka_quotas.pipeline.formats.lines import RemoteFile
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat, ParsedBatch, TaskCounts
from kafka_quotas.pipeline.ingest.plan import PIECE_BYTES
from kafka_quotas.pipeline.ingest.spark_engine import _packed_rows, partitions
from kafka_quotas.pipeline.tables.schemas import EVENTS


def task(size: int, *, start: int = 0, end: int | None = None) -> IngestTask:
    return IngestTask(
        number=0,
        file_number=0,
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


@pytest.mark.parametrize(("read_to", "most"), [(6_000, 7), (3_000, 4), (90_000, 11)])
def test_a_task_sends_samples_by_the_bytes_that_it_read_not_by_its_events(
    monkeypatch: pytest.MonkeyPatch, read_to: int, most: int
) -> None:
    monkeypatch.setattr(event_ranges, "_SAMPLED", 16)
    stored = events_table(random_events(2_000, seed=3)).select(
        [name for name in EVENTS.column_names if name not in ("dt", "client", "ingest")]
    )
    counts = TaskCounts(number=0, read_to=read_to)
    parsed = ParsedBatch(counts=counts, event_batches=stored.to_batches())
    rows = list(_packed_rows(task(10_000), [parsed], 1, None, samples_per_byte=0.001))
    (sample,) = [unpacked(content) for found, content in rows if found == "sample"]
    assert sample.num_rows == most
    assert sum(sample["events"].to_pylist()) == pytest.approx(2_000)
