"""An ingest on this machine without Spark: neighbouring tasks in threads or processes, each of which writes its rows.

Tasks of one file follow each other in one worker, so that a packed row has what a client did in an hour.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.job import JobProgress, Watch
from kafka_quotas.pipeline.formats.task import IngestTask, TaskCounts
from kafka_quotas.pipeline.ingest.ingested_tables import StagedRows, write_tables
from kafka_quotas.pipeline.ingest.parse import parse_task
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import keep_memory
from kafka_quotas.pipeline.tables.staged_files import StagedFile

_TOGETHER_BYTES: Final = 1 << 28
"""About how many bytes of logs a worker packs together, at most."""
_LISTS_PER_WORKER: Final = 2
_PARALLEL_FROM_BYTES: Final = 8 * 1024 * 1024
"""Size below which one thread reads faster than several workers start."""


def workers(tasks: Sequence[IngestTask], size: int) -> Executor:
    """Return workers for tasks of `size` bytes, at most one per core.

    They are threads where machine code does the work, and processes where Python does.
    """
    count = min(len(tasks) if size >= _PARALLEL_FROM_BYTES else 1, os.cpu_count() or 1)
    if count <= 1 or all(task.is_compiled for task in tasks):
        return ThreadPoolExecutor(max(count, 1))
    context = get_context("forkserver")
    context.set_forkserver_preload(["kafka_quotas.pipeline.ingest.local_engine"])  # loaded once, not by each
    return ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this worker as soon as its parent is gone: nobody would end it after a kill."""
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def ingest_locally(tasks: Sequence[IngestTask], *, size: int, lake: Lake, watch: Watch) -> StagedRows:
    """Run the tasks, which read about `size` bytes, and write their rows."""
    keep_memory()
    counts: list[TaskCounts] = []
    staged = defaultdict[str, list[StagedFile]](list)
    lists = 1 if size < _PARALLEL_FROM_BYTES else _LISTS_PER_WORKER * (os.cpu_count() or 1)
    watch(JobProgress(stage="read", done=0, total=len(tasks)))
    with workers(tasks, size) as pool:
        running = [pool.submit(_run_tasks, own, lake) for own in _together(tasks, lists)]
        try:
            for future in as_completed(running):
                found, files = future.result()
                counts += found
                for name, own in files.items():
                    staged[name] += own
                stage = "read" if len(counts) < len(tasks) else "sort and write"
                rows = sum(each.lines for each in counts)
                watch(JobProgress(stage=stage, done=len(counts), total=len(tasks), rows=rows))
        except BrokenProcessPool as error:
            raise KafkaQuotasError("a worker process was killed", hint="is there enough memory?") from error
        finally:
            for future in running:
                future.cancel()
    return counts, staged


def _together(tasks: Sequence[IngestTask], lists: int) -> list[list[IngestTask]]:
    """Return the tasks by path and offset in about as many lists, the largest first, each for one worker."""
    most = min(sum(task.size for task in tasks) // lists, _TOGETHER_BYTES)
    found: list[list[IngestTask]] = [[]]
    for task in sorted(tasks, key=lambda task: (str(task.path), task.start)):
        if found[-1] and sum(each.size for each in found[-1]) + task.size > most:
            found.append([])
        found[-1].append(task)
    return sorted(found, key=lambda own: -sum(each.size for each in own))


def _run_tasks(tasks: Sequence[IngestTask], lake: Lake) -> StagedRows:
    return write_tables(lake, map(parse_task, tasks))
