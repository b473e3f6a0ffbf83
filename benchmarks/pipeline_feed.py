"""The speed of what feeds the pipeline: ingest of request logs, and the stream.

    python benchmarks/pipeline_feed.py [--lines 500e3] [--events 10e6] [--cases ingest,ingest-spark,stream,stream-json]

`ingest-spark` is the whole command with the start of its session, `ingest-spark-warm` the second and the third ingest
in a session that is there. The log is the shipped one, over and over (1.5 kB a line), so that its client-ids and sizes
are real. `stream` reads packed events, one batch per file, `stream-json` lines of the daemon's event log
(245 bytes each) from a topic of four partitions, a quarter of the events in each batch; the broker's time is in its
figures.

Wall time counts only what an idle machine would: beside it stand the processor seconds of the case and of everybody
else meanwhile; the last column is the speed with two processors alone.
"""

import argparse
import gzip
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import write_deltalake
from pipeline import cpu_seconds, machine_seconds
from tests.support.brokers.servers import kafka_4

from kafka_quotas.pipeline.buckets.proposal import Proposal
from kafka_quotas.pipeline.engine.events import EventsRequest, EventsWatcher
from kafka_quotas.pipeline.engine.job import Engine, ignore_progress
from kafka_quotas.pipeline.engine.spark_session import spark_session
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.ingest.job import IngestRequest, ingest
from kafka_quotas.pipeline.ingest.plan import IngestSettings
from kafka_quotas.pipeline.stream.batch import Batch
from kafka_quotas.pipeline.stream.job import StreamPlan, stream
from kafka_quotas.pipeline.stream.source import FolderSource, Source, TopicSource
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import client_numbers, pack
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS

SAMPLE = Path(__file__).parents[1] / "examples/request-log/1/kafka-request.log.gz"
PROCESSORS = 2
FILES = 8
TOPIC = "quota-events"
TOPIC_PARTITIONS = 4
TOPIC_BATCHES = 4
LINE = (
    '{{"v":1,"ts_ms":{},"cluster":"production","broker_id":1,"connection":{},"user":"u{}","client_id":"app",'
    '"ip":"10.0.0.7","quota_type":"produce","api_key":0,"bytes":{},"thread_ms":0,"mutations":0,"throttle_ms":0,'
    '"is_exempt":false}}'
)
CHUNK = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=float, default=500e3)
    parser.add_argument("--events", type=float, default=10e6)
    parser.add_argument("--cases", default="ingest,ingest-spark,ingest-spark-warm,stream,stream-json")
    given = parser.parse_args()
    print(f"{'case':18}{'steps':>12}{'per s':>12}{'wall s':>9}{'cpu s':>9}{'others':>9}{'per s of 2':>13}")
    with tempfile.TemporaryDirectory() as folder:
        cases: dict[str, Callable[[], None]] = {
            "ingest": lambda: ingest_case("ingest", Engine.LOCAL, Path(folder), int(given.lines)),
            "ingest-spark": lambda: ingest_case("ingest-spark", Engine.SPARK, Path(folder), int(given.lines)),
            "ingest-spark-warm": lambda: warm_case("ingest-spark-warm", Path(folder), int(given.lines)),
            "stream": lambda: files_case(Path(folder), int(given.events)),
            "stream-json": lambda: topic_case(Path(folder), int(given.events)),
        }
        # Java is started once, with the packages of the first case: a topic wants one that the others do without.
        for case in sorted(given.cases.split(","), key=lambda each: each != "stream-json"):
            cases[case]()


def ingest_case(case: str, engine: Engine, folder: Path, lines: int) -> None:
    """Print a line of figures, which include the session's start on Spark."""
    request = ingest_request(case, engine, folder, lines)
    watcher = EventsWatcher(progress=ignore_progress, chosen=lambda _: None)
    tell(case, lambda: ingest(request, watcher).counts.events)


def warm_case(case: str, folder: Path, lines: int) -> None:
    """Print two lines of figures, of the ingests after the first in one session."""
    requests = [ingest_request(f"{case}-{number}", Engine.SPARK, folder, lines) for number in range(3)]
    watcher = EventsWatcher(progress=ignore_progress, chosen=lambda _: None)
    with (
        spark_session(requests[0].target.spark) as session,
        mock.patch("kafka_quotas.pipeline.ingest.job.started", return_value=session),
    ):
        ingest(requests[0], watcher)
        for request in requests[1:]:
            tell(case, lambda request=request: ingest(request, watcher).counts.events)  # type: ignore[misc]


def ingest_request(case: str, engine: Engine, folder: Path, lines: int) -> IngestRequest:
    """Return the ingest of a log of so many lines, which is written unless it is there."""
    log = folder / "request.log"
    if not log.exists():
        sample = gzip.decompress(SAMPLE.read_bytes())
        with log.open("wb") as file:
            for _ in range(max(1, lines // sample.count(b"\n"))):
                file.write(sample)
    return IngestRequest(
        patterns=(),
        paths=(str(log),),
        replaced=(),
        target=EventsRequest(
            data=str(folder / case),
            spark=SparkSettings(log_file=folder / "spark.log", master=f"local[{PROCESSORS}]"),
            engine=engine,
        ),
        settings=IngestSettings(cluster="c", broker_id=1, zone="UTC"),
    )


def files_case(folder: Path, events: int) -> None:
    """Stream files of events."""
    lake = Lake(url=str(folder / "packed"))
    lake.create()
    for number in range(FILES):
        add_events(lake, number, events // FILES)
    source = FolderSource(folder=Path(lake.place(PACKED_EVENTS)), is_delta=True)
    stream_case("stream", folder, source, batch_size=1)


def topic_case(folder: Path, events: int) -> None:
    """Stream lines from a topic of a broker of its own."""
    with kafka_4() as kafka:
        fill_topic(kafka.bootstrap, events)
        source = TopicSource(bootstrap=kafka.bootstrap, topic=TOPIC)
        stream_case("stream-json", folder, source, batch_size=-(-events // TOPIC_BATCHES))


def stream_case(case: str, folder: Path, source: Source, *, batch_size: int) -> None:
    """Print a line of figures of the batches after the first, which loads and compiles."""
    marks: list[tuple[int, float, float, float]] = []

    def report(batch: Batch, _: float) -> None:
        marks.append((batch.events, time.monotonic(), cpu_seconds(), machine_seconds()))

    plan = StreamPlan(
        source=source,
        target=str(folder / case),
        checkpoint=str(folder / f"{case}-checkpoint"),
        spark=SparkSettings(log_file=folder / "spark.log", master=f"local[{PROCESSORS}]"),
        quotas=lambda: Proposal(name="nothing", entries=()),
        batch_size=batch_size,
        report=report,
        show=lambda *_: None,
        stop=threading.Event(),
    )
    stream(plan)
    wall, cpu, machine = (last - first for first, last in zip(marks[0][1:], marks[-1][1:], strict=True))
    line(case, sum(events for events, *_ in marks[1:]), wall, cpu, machine)


def tell(case: str, work: Callable[[], int]) -> None:
    wall, cpu, machine = time.monotonic(), cpu_seconds(), machine_seconds()
    steps = work()
    line(case, steps, time.monotonic() - wall, cpu_seconds() - cpu, machine_seconds() - machine)


def line(case: str, steps: int, wall: float, cpu: float, machine: float) -> None:
    alone = PROCESSORS * steps / cpu
    others = max(0.0, machine - cpu)
    print(f"{case:18}{steps:12,}{steps / wall:12,.0f}{wall:9.1f}{cpu:9.1f}{others:9.1f}{alone:13,.0f}", flush=True)


def fill_topic(bootstrap: str, events: int) -> None:
    """Send twenty events per ms of 10,000 clients, Zipf over them, until now."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # without a name it would end before its answer
    admin.create_topics([NewTopic(TOPIC, TOPIC_PARTITIONS, 1)])[TOPIC].result(60)
    settings = {"linger.ms": 50, "batch.size": 900_000, "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2 * CHUNK, **settings})
    chance, begin_ms = np.random.default_rng(0), round(time.time() * 1000) - events // 20
    for start in range(0, events, CHUNK):
        clients = (chance.zipf(1.1, CHUNK) % 10_000).tolist()
        sizes = chance.integers(100, 100_000, CHUNK).tolist()
        for number, (client, size) in enumerate(zip(clients, sizes, strict=True), start):
            text = LINE.format(begin_ms + number // 20, client, client, size)
            producer.produce(TOPIC, text, partition=client % TOPIC_PARTITIONS)
        producer.flush(120)


def add_events(lake: Lake, number: int, count: int) -> None:
    """Add one minute of produce events of 10,000 clients, Zipf over them."""
    chance = np.random.default_rng(number)
    clients = chance.zipf(1.1, count) % 10_000
    fixed = {"cluster": "c", "broker_id": 1, "client_id": "app", "ip": "10.0.0.1", "quota_type": "produce"}
    zeros = {"mutations": 0, "throttle_ms": 0, "api_key": 0, "src_offset": 0}
    flags = {"is_exempt": False, "is_estimated": False, "is_thread_estimated": False}
    columns: dict[str, object] = {
        "ts_ms": 1_795_262_400_000 + number * 60_000 + np.sort(chance.integers(0, 60_000, count)),
        "user": np.char.add("u", clients.astype(str)),
        "bytes": chance.integers(100, 100_000, count),
        "thread_ms": pa.nulls(count, pa.float64()),
    }
    schema = EVENTS.arrow_schema()
    same = {**fixed, **zeros, **flags, "connection": "c", "src_file": "f"}
    columns |= {name: pa.repeat(pa.scalar(value, schema.field(name).type), count) for name, value in same.items()}
    own = pa.schema([field for field in schema if field.name != "client"])
    loose = pa.table({name: columns[name] for name in own.names}, schema=own).combine_chunks()
    rows = pack(loose.append_column("client", client_numbers(loose.to_batches()[0])).select(schema.names))
    write_deltalake(lake.place(PACKED_EVENTS), rows, mode="append")


if __name__ == "__main__":
    main()
