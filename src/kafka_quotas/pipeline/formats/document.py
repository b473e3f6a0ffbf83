"""A file that is read as a whole: a scrape, or a client's metrics."""

from collections.abc import Iterator

from kafka_quotas.pipeline.formats.detect import InputFormat
from kafka_quotas.pipeline.formats.lines import read_blocks
from kafka_quotas.pipeline.formats.metric_rows import (
    TimedSample,
    java_rows,
    json_samples,
    metric_rows,
    printed_samples,
    prometheus_samples,
)
from kafka_quotas.pipeline.formats.rows import BadLineError
from kafka_quotas.pipeline.formats.source_file import file_size
from kafka_quotas.pipeline.formats.task import IngestTask, ParsedBatch


def read_document(task: IngestTask, parsed: ParsedBatch) -> None:
    """Add the rows of a file to the batch.

    Raises:
        OSError: The file can't be read.
    """
    _DocumentReader(task, parsed).read_samples()
    parsed.counts.read_to = file_size(task.path)


class _DocumentReader:
    def __init__(self, task: IngestTask, parsed: ParsedBatch) -> None:
        self._task = task
        self._src_file = str(task.path)
        self._parsed = parsed

    def read_samples(self) -> None:
        """Add the figures about quotas to the batch, and count the others."""
        task, src_file, parsed = self._task, self._src_file, self._parsed
        samples = list(
            self._json_samples() if self._task.input_format is InputFormat.JSON_METRICS else self._line_samples()
        )
        broker = "" if task.broker_id is None else str(task.broker_id)
        parsed.metrics += metric_rows(
            samples, names=task.names, broker=broker, ts_ms=task.ts_ms, cluster=task.cluster, src_file=src_file
        )
        parsed.client_throttle += java_rows(samples, ts_ms=task.ts_ms, cluster=task.cluster, src_file=src_file)
        parsed.counts.unused = max(0, len(samples) - len(parsed.metrics) - len(parsed.client_throttle))

    def _line_samples(self) -> Iterator[TimedSample]:
        parse = printed_samples if self._task.input_format is InputFormat.JAVA_CLIENT else prometheus_samples
        for number, line in self._lines():
            try:
                yield from parse(line.decode())
            except UnicodeDecodeError:
                self._refuse(line, BadLineError("not UTF-8"), number)
            except BadLineError as error:
                self._refuse(line, error, number)

    def _json_samples(self) -> Iterator[TimedSample]:
        """Yield the samples of one document, or of each line where the whole is no document."""
        lines = list(self._lines())
        try:
            found = list(json_samples(b"\n".join(line for _, line in lines)))
        except BadLineError:
            for number, line in lines:
                try:
                    yield from json_samples(line)
                except BadLineError as error:
                    self._refuse(line, error, number)
        else:
            yield from found

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        counts = self._parsed.counts
        for block in read_blocks(self._task.path):
            for line in block.lines:
                counts.lines += 1
                if block.fault is not None:
                    self._refuse(line, BadLineError(block.fault), counts.lines)
                elif line.strip():
                    yield counts.lines, line
                else:
                    counts.blank += 1

    def _refuse(self, line: bytes, error: BadLineError, number: int) -> None:
        self._parsed.refuse(line, error, src_file=self._src_file, line_no=number)
