"""Reads the samples of a load test, batch by batch."""

from collections.abc import Iterator
from typing import Any, Final

from kafka_quotas.pipeline.ingest.bad_line import BadLineError
from kafka_quotas.pipeline.ingest.harvest import Harvest
from kafka_quotas.pipeline.ingest.lines import read_head
from kafka_quotas.pipeline.ingest.load_test_samples import PARQUET_MAGIC, sample_batches, sample_row
from kafka_quotas.pipeline.ingest.rows import EventRow
from kafka_quotas.pipeline.ingest.task import IngestTask

_SHOWN_BYTES: Final = 4096


def read_load_test(task: IngestTask, harvest: Harvest) -> Iterator[Harvest]:
    """Rows in batches, as `parse_task` gives them. Raises `OSError` where the file can't be read."""
    counts, src_file = harvest.counts, str(task.path)
    try:
        if read_head(task.path, len(PARQUET_MAGIC)) != PARQUET_MAGIC:
            raise BadLineError("this document has no events; samples.parquet beside it does")  # noqa: TRY301
        for rows in sample_batches(task.path):
            _take(rows, task, harvest)
            yield harvest.counted()
            harvest.clear()
    except BadLineError as error:
        counts.lines += 1
        harvest.refuse(read_head(task.path, _SHOWN_BYTES), error, src_file=src_file, line_no=counts.lines)
    counts.read_to = task.path.stat().st_size
    yield harvest.counted()


def _take(rows: list[dict[str, Any]], task: IngestTask, harvest: Harvest) -> None:
    """Nothing; what the rows become is in the harvest."""
    counts = harvest.counts
    for row in rows:
        try:
            found = sample_row(row, counts.lines, task)
        except BadLineError as error:
            harvest.refuse(str(row).encode(), error, src_file=str(task.path), line_no=counts.lines + 1)
        else:
            if found is None:
                counts.unused += 1
            elif isinstance(found, EventRow):
                harvest.events.append(found)
            else:
                harvest.client_throttle.append(found)
        counts.lines += 1
