"""Large logs on Spark against the local engine: the same rows, wherever the text source splits them.

The bounds are small, so that a log of some kilobytes is large. Logs have what logs should not have: bytes that are no
text, carriage returns, blank lines, a last line without its end, an hour that is there twice, a line longer than a
split, and an end that is lost.
"""

import gzip
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.support.pipeline.logs import log_text, request_line, table_rows

from kafka_quotas.pipeline.engine.job import ignore_progress
from kafka_quotas.pipeline.formats import lines
from kafka_quotas.pipeline.formats.task import IngestTask, InputFormat, TaskCounts
from kafka_quotas.pipeline.ingest import plan
from kafka_quotas.pipeline.ingest.commits import IngestRecord, commit, records_of
from kafka_quotas.pipeline.ingest.ingested_tables import ingest_locally
from kafka_quotas.pipeline.ingest.plan import IngestSettings, KnownFiles, plan_ingest
from kafka_quotas.pipeline.ingest.sources import FoundFile, ListFiles, hadoop_files, inspect_files
from kafka_quotas.pipeline.ingest.spark_engine import ingest_on_spark
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS, QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPLIT_BYTES = 10_000
_LONGEST_LINE = 9_000
_CHANGED_MS = 1_795_300_000_000
_ODD = b"\xff\xfe no text\n\r\n\n" + request_line(client_id="r?sum?").replace("?", "\udce9").encode(
    errors="surrogateescape"
)
_TEXT = log_text(20).encode() + _ODD + b"x" * 10_000 + b"\n" + log_text(16, first=20).encode()
_TWICE = [(hour, minute) for hour in (1, 2, 2, 3) for minute in (0, 20, 40)]
_LOGS = {
    "1/a log of 100%25 + more.log": _TEXT,
    "2/open.log": _TEXT + log_text(1, first=40).encode()[:-40],
    "3/packed.log.gz": gzip.compress(_TEXT + b"open"),
    "4/twice.log": "".join(
        request_line(stamp=f"[2026-10-25 0{hour}:{minute:02}:00,000]", number=number)
        for number, (hour, minute) in enumerate(_TWICE)
    ).encode(),
    "5/damaged.log.gz": gzip.compress(_TEXT)[:-100],
    "6/grown.log": _TEXT * 2,
    "7/grown at once.log": _TEXT * 2,
}
_READ_TO = {"6": len(_TEXT + log_text(5).encode()), "7": len(_TEXT[:15_000].rpartition(b"\n")[0]) + 1}
_DAMAGE = "the packed file is damaged: "


def require_equal_large_logs(session: "SparkSession", folder: Path) -> None:
    """Ingest logs on Spark and here, and compare the rows and the counts of files."""
    for name, content in _LOGS.items():
        (folder / "logs" / name).parent.mkdir(parents=True)
        (folder / "logs" / name).write_bytes(content)
    before = session.conf.get("spark.sql.files.maxPartitionBytes")
    session.conf.set("spark.sql.files.maxPartitionBytes", _SPLIT_BYTES)
    with ExitStack() as stack:
        for module, name, value in ((lines, "LONGEST_LINE", _LONGEST_LINE), (plan, "LARGEST_CONTENT_BYTES", 0)):
            stack.enter_context(mock.patch.object(module, name, value))
        known = _ingested(None, folder / "here", _tasks(folder / "logs"))
        found = _ingested(session, folder / "there", _tasks(folder / "logs", partial(hadoop_files, session)))
    session.conf.set("spark.sql.files.maxPartitionBytes", before or "128m")
    assert found == known
    assert _DAMAGE in (row["reason"] for row in known[0][QUARANTINE.name])


def _tasks(logs: Path, listed: ListFiles | None = None) -> tuple[IngestTask, ...]:
    """Return the tasks of all logs, by path, or by URLs at which Spark finds them."""
    is_remote = listed is not None
    if listed is not None:
        assert not list(listed(f"file:{logs}/none"))
        by_url = {each.url: replace(each, modified_ms=_CHANGED_MS) for each in listed(f"file:{logs}")}
        files = [FoundFile(path=by_url[f"file:{logs}/{name}"], broker_id=int(name[0])) for name in _LOGS]
    else:
        files = [FoundFile(path=logs / name, broker_id=int(name[0])) for name in _LOGS]
    inspected = inspect_files(files, input_format=None)
    digests = [each.head_sha256 for each in inspect_files(files, input_format=InputFormat.PROMETHEUS)]
    assert digests == [sha256(content).hexdigest() for content in _LOGS.values()]
    settings = IngestSettings(cluster="c", zone="Europe/Berlin")
    planned = plan_ingest(inspected, settings=settings, known=KnownFiles(()))
    described = [each.described for each in planned.files if str(each.described.broker_id) in _READ_TO]
    before = KnownFiles(replace(each, size=1, read_to=_READ_TO[str(each.broker_id)]) for each in described)
    planned = plan_ingest(inspected, settings=settings, known=before)
    tasks = planned.tasks(is_spark=is_remote)
    assert {each.large is not None for each in tasks} == {is_remote}
    return tasks


def _ingested(
    session: "SparkSession | None", out: Path, tasks: Sequence[IngestTask]
) -> tuple[dict[str, list[Any]], dict[int | None, TaskCounts]]:
    """Return the rows of an ingest on Spark or, without a session, on this machine, and the counts by broker."""
    lake = Lake(url=str(out))
    lake.create()
    if session is None:
        counts, found = ingest_locally(tasks, size=0, lake=lake, watch=ignore_progress)
    else:
        counts, found = ingest_on_spark(session, tasks, lake=lake, watch=ignore_progress)
    staged = dict(found)
    record = IngestRecord(at_ms=_CHANGED_MS, files=(), staged=staged)
    assert commit(lake, record, staged.pop(PACKED_EVENTS.name), records_of(lake), lambda _: False) is not None
    rows = {}
    for table in (EVENTS, QUARANTINE):
        found_rows = table_rows(out, table)
        for row in found_rows:
            row["src_file"] = Path(row["src_file"]).name
            if row.get("reason", "").startswith(_DAMAGE):
                row["reason"] = _DAMAGE  # each has words of its own for it
        rows[table.name] = sorted(found_rows, key=repr)
        assert len(rows[table.name]) > len(_LOGS)
    brokers = {task.number: task.broker_id for task in tasks}
    assert len(brokers) == len(counts)
    return rows, {brokers[each.number]: replace(each, number=0) for each in counts}
