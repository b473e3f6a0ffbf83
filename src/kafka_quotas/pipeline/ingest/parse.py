"""A task carried out: the rows of its lines, in batches. This is what both engines run.

Invariant: the rows and counts depend on the task and the file alone, so that a task may be run again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from zoneinfo import ZoneInfo

from kafka_quotas.pipeline.ingest.bad_line import BadLineError
from kafka_quotas.pipeline.ingest.broker_metric import metric_rows
from kafka_quotas.pipeline.ingest.client_metric import java_rows, librdkafka_rows, load_test_rows
from kafka_quotas.pipeline.ingest.daemon_log import parse_daemon_line
from kafka_quotas.pipeline.ingest.form import Form
from kafka_quotas.pipeline.ingest.harvest import Harvest
from kafka_quotas.pipeline.ingest.lines import Line, count_lines_before, read_lines
from kafka_quotas.pipeline.ingest.metric_sample import (
    TimedSample,
    json_samples,
    printed_samples,
    prometheus_samples,
)
from kafka_quotas.pipeline.ingest.request_log import LogOrigin, parse_request_line
from kafka_quotas.pipeline.ingest.rows import Row
from kafka_quotas.pipeline.ingest.stamp import StampReader
from kafka_quotas.pipeline.ingest.task import IngestTask, TaskCounts

BATCH_ROWS = 20_000
_UNFINISHED = "unfinished last line: {}; it is read again when the file has grown"

_ParseLine = Callable[[Line], Sequence[Row]]


def parse_task(task: IngestTask) -> Iterator[Harvest]:
    """Rows in batches of about `BATCH_ROWS`, the last one with the counts of all; read each before asking for the next.

    Raises `OSError` where the file can't be read.
    """
    reader = _TaskReader(task)
    yield from reader.grown() if task.form.grows else reader.whole()


class _TaskReader:
    def __init__(self, task: IngestTask) -> None:
        self._task = task
        self._src_file = str(task.path)
        self._harvest = Harvest(counts=TaskCounts(number=task.number, read_to=task.start))

    def grown(self) -> Iterator[Harvest]:
        """The rows of a file that is read line by line."""
        parse, harvest, counts = self._line_parser(), self._harvest, self._harvest.counts
        for line in read_lines(self._task.path, start=self._task.start, end=self._task.end):
            counts.lines += 1
            if self._is_done_with(line, parse):
                counts.read_to = line.next_offset
            if harvest.size >= BATCH_ROWS:
                yield harvest
                harvest.clear()
        yield harvest

    def _is_done_with(self, line: Line, parse: _ParseLine) -> bool:
        """Whether the line need not be read again once the file has grown."""
        harvest = self._harvest
        try:
            if line.fault is not None:
                raise BadLineError(line.fault)  # noqa: TRY301 - told like every other
            if not line.content or line.content.isspace():
                harvest.counts.blank += 1
                return True
            harvest.add(parse(line))
        except BadLineError as error:
            reason = BadLineError(_UNFINISHED.format(error)) if line.is_open else error
            self._refuse(line.content, reason)
            return not line.is_open
        return True

    def _refuse(self, content: bytes, error: BadLineError) -> None:
        number = self._lines_before + self._harvest.counts.lines
        self._harvest.refuse(content, error, src_file=self._src_file, line_no=number)

    @cached_property
    def _lines_before(self) -> int:
        """The lines before this task's part; only a line that can't be read asks for them."""
        first = next(read_lines(self._task.path, start=self._task.start), None)
        return 0 if first is None else count_lines_before(self._task.path, first.offset)

    def _line_parser(self) -> _ParseLine:
        task, src_file = self._task, self._src_file
        if task.form is Form.DAEMON_EVENTS:
            return lambda line: (parse_daemon_line(line.content, offset=line.offset, src_file=src_file),)
        if task.form is Form.LIBRDKAFKA_STATS:
            return lambda line: tuple(librdkafka_rows(line.content, cluster=task.cluster, src_file=src_file))
        return self._request_parser()

    def _request_parser(self) -> _ParseLine:
        task, counts = self._task, self._harvest.counts
        stamps = StampReader(ZoneInfo(task.zone) if task.zone else None)
        broker_id = -1 if task.broker_id is None else task.broker_id
        origin = LogOrigin(cluster=task.cluster, broker_id=broker_id, src_file=self._src_file)

        def parse(line: Line) -> Sequence[Row]:
            row = parse_request_line(line.content, offset=line.offset, stamps=stamps, origin=origin)
            if row is None:
                counts.forwarded += 1
                return ()
            return (row,)

        return parse

    def whole(self) -> Iterator[Harvest]:
        """The rows of a file that is one document."""
        task, harvest = self._task, self._harvest
        if task.form is Form.LOAD_TEST:
            self._try_whole(lambda content: load_test_rows(content, cluster=task.cluster, src_file=self._src_file))
        else:
            samples = list(self._samples())
            before = harvest.size
            self._add_metrics(samples)
            harvest.counts.unused = max(0, len(samples) - (harvest.size - before))
        harvest.counts.read_to = task.path.stat().st_size
        yield harvest

    def _add_metrics(self, samples: Sequence[TimedSample]) -> None:
        task, src_file = self._task, self._src_file
        broker = "" if task.broker_id is None else str(task.broker_id)
        self._harvest.add(
            metric_rows(
                samples, names=task.names, broker=broker, ts_ms=task.ts_ms, cluster=task.cluster, src_file=src_file
            )
        )
        self._harvest.add(java_rows(samples, ts_ms=task.ts_ms, cluster=task.cluster, src_file=src_file))

    def _samples(self) -> Iterator[TimedSample]:
        if self._task.form is Form.JSON_METRICS:
            yield from self._json_samples()
            return
        parse = printed_samples if self._task.form is Form.JAVA_CLIENT else prometheus_samples
        for line in self._text_lines():
            try:
                yield from parse(line.content.decode())
            except (BadLineError, UnicodeDecodeError) as error:
                self._refuse(line.content, error if isinstance(error, BadLineError) else BadLineError("not UTF-8"))

    def _json_samples(self) -> Iterator[TimedSample]:
        """The samples of one document, or of each line where the whole is none."""
        lines = list(self._text_lines())
        try:
            found = list(json_samples(b"\n".join(line.content for line in lines)))
        except BadLineError:
            self._harvest.counts.lines = 0
            for self._harvest.counts.lines, line in enumerate(lines, start=1):
                try:
                    yield from json_samples(line.content)
                except BadLineError as error:
                    self._refuse(line.content, error)
        else:
            yield from found

    def _text_lines(self) -> Iterator[Line]:
        for line in read_lines(self._task.path):
            self._harvest.counts.lines += 1
            if line.fault is not None:
                self._refuse(line.content, BadLineError(line.fault))
            elif line.content.strip():
                yield line
            else:
                self._harvest.counts.blank += 1

    def _try_whole(self, rows: Callable[[bytes], Iterator[Row]]) -> None:
        content = b"\n".join(line.content for line in self._text_lines())
        try:
            self._harvest.add(list(rows(content)))
        except BadLineError as error:
            self._refuse(content, error)
