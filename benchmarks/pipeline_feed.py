"""The speed of what feeds the pipeline: ingest of request logs, and the stream.

    python benchmarks/pipeline_feed.py [--lines 500e3] [--events 10e6] [--cases ingest,ingest-spark,stream]

The log is the shipped one, over and over (1.5 kB a line), so that its client-ids and sizes are real. The stream reads
Parquet files of events, one batch per file. Wall time counts only what an idle machine would: beside it stand the
processor seconds of the case and of everybody else meanwhile; the last column is the speed with two processors alone.
"""

import argparse
import gzip
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pipeline import cpu_seconds, machine_seconds

from kafka_quotas.commands.pipeline.ingest import IngestRequest, ingest
from kafka_quotas.commands.pipeline.stream import StreamRequest, StreamWatcher, stream
from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.choice import Engine
from kafka_quotas.pipeline.engine.progress import ignore_progress
from kafka_quotas.pipeline.engine.runner import EventsWatcher
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.ingest.plan import IngestSettings
from kafka_quotas.pipeline.stream.job import BatchReport
from kafka_quotas.pipeline.stream.source import FolderSource
from kafka_quotas.pipeline.tables.schemas import EVENTS

SAMPLE = Path(__file__).parents[1] / "examples/request-log/1/kafka-request.log.gz"
PROCESSORS = 2
FILES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=float, default=500e3)
    parser.add_argument("--events", type=float, default=10e6)
    parser.add_argument("--cases", default="ingest,ingest-spark,stream")
    given = parser.parse_args()
    print(f"{'case':16}{'steps':>12}{'per s':>12}{'wall s':>9}{'cpu s':>9}{'others':>9}{'per s of 2':>13}")
    with tempfile.TemporaryDirectory() as folder:
        cases: dict[str, Callable[[], None]] = {
            "ingest": lambda: ingest_case("ingest", Engine.LOCAL, Path(folder), int(given.lines)),
            "ingest-spark": lambda: ingest_case("ingest-spark", Engine.SPARK, Path(folder), int(given.lines)),
            "stream": lambda: stream_case(Path(folder), int(given.events)),
        }
        for case in given.cases.split(","):
            cases[case]()


def ingest_case(case: str, engine: Engine, folder: Path, lines: int) -> None:
    """Print a line of figures, which include the session's start on Spark."""
    log = folder / "request.log"
    if not log.exists():
        sample = gzip.decompress(SAMPLE.read_bytes())
        with log.open("wb") as file:
            for _ in range(max(1, lines // sample.count(b"\n"))):
                file.write(sample)
    request = IngestRequest(
        patterns=(),
        paths=(log,),
        replaced=(),
        out=str(folder / case),
        settings=IngestSettings(cluster="c", broker_id=1, zone="UTC"),
        spark=SparkSettings(log_file=folder / "spark.log", master=f"local[{PROCESSORS}]"),
        engine=engine,
    )
    watcher = EventsWatcher(progress=ignore_progress, chosen=lambda _: None)
    tell(case, lambda: ingest(request, watcher).counts.events)


def stream_case(folder: Path, events: int) -> None:
    """Print a line of figures of the batches after the first, which loads and compiles."""
    source = folder / "events"
    source.mkdir()
    for number in range(FILES):
        write_events(source / f"{number}.parquet", number, events // FILES)
    marks: list[tuple[float, float, float]] = []

    def report(batch: BatchReport) -> None:
        del batch
        marks.append((time.monotonic(), cpu_seconds(), machine_seconds()))

    request = StreamRequest(
        source=FolderSource(folder=source, is_parquet=True),
        target=folder / "live",
        checkpoint=folder / "checkpoint",
        spark=SparkSettings(log_file=folder / "spark.log", master=f"local[{PROCESSORS}]"),
        quotas=Proposal(name="nothing", entries=()),
        batch_size=1,
    )
    stream(request, StreamWatcher(report=report, show=lambda _: None, stop=threading.Event()))
    wall, cpu, machine = (last - first for first, last in zip(marks[0], marks[-1], strict=True))
    line("stream", events // FILES * (FILES - 1), wall, cpu, machine)


def tell(case: str, work: Callable[[], int]) -> None:
    wall, cpu, machine = time.monotonic(), cpu_seconds(), machine_seconds()
    steps = work()
    line(case, steps, time.monotonic() - wall, cpu_seconds() - cpu, machine_seconds() - machine)


def line(case: str, steps: int, wall: float, cpu: float, machine: float) -> None:
    alone = PROCESSORS * steps / cpu
    others = max(0.0, machine - cpu)
    print(f"{case:16}{steps:12,}{steps / wall:12,.0f}{wall:9.1f}{cpu:9.1f}{others:9.1f}{alone:13,.0f}", flush=True)


def write_events(path: Path, number: int, count: int) -> None:
    """One minute of produce events of 10,000 clients, Zipf over them."""
    chance = np.random.default_rng(number)
    clients = chance.zipf(1.1, count) % 10_000
    fixed = {"cluster": "c", "broker_id": 1, "client_id": "app", "ip": "10.0.0.1", "quota_type": "produce"}
    zeros = {"mutations": 0, "throttle_ms": 0, "api_key": 0, "src_offset": 0, "client": 0, "ingest": 1}
    flags = {"is_exempt": False, "is_estimated": False, "is_thread_estimated": False}
    columns: dict[str, object] = {
        "ts_ms": 1_795_262_400_000 + number * 60_000 + np.sort(chance.integers(0, 60_000, count)),
        "user": np.char.add("u", clients.astype(str)),
        "bytes": chance.integers(100, 100_000, count),
        "thread_ms": pa.nulls(count, pa.float64()),
    }
    schema = pa.schema([field for field in EVENTS.arrow_schema() if field.name != "dt"])
    same = {**fixed, **zeros, **flags, "connection": "c", "src_file": "f"}
    columns |= {name: pa.repeat(pa.scalar(value, schema.field(name).type), count) for name, value in same.items()}
    pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")


if __name__ == "__main__":
    main()
