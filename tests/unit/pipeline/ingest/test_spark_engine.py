"""How the tasks of an ingest are spread over Spark's partitions."""

from kafka_quotas.core.formats.metric_names import BUILT_IN
from kafka_quotas.pipeline.formats.lines import RemoteFile
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat
from kafka_quotas.pipeline.ingest.plan import PIECE_BYTES
from kafka_quotas.pipeline.ingest.spark_engine import partitions


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
