"""How closely clients are held to a quota that they share: `python benchmarks/daemon/shared_quota.py [--clients ...]`.

Clients of librdkafka, kafka-python and Java, on 1, 16 and 200 connections that share one quota of 20 MB/s, in requests
of at most 64 KiB, for a minute each, against a real broker. The bytes are those of the daemon's event log, exact and
with the time at which they were charged, judged by whole throttle cycles as `load-test` judges. Aim: within 2 %; for
fetches under `--fetch-over-quota kafka` the range that brokers themselves keep to.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import cost
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.brokers.java_process import java_command
from tests.support.brokers.servers import Kafka, kafka_4

from kafka_quotas.commands.testbed.daemon_process import running_daemon
from kafka_quotas.loadtest.plan.client_verdict import judge
from kafka_quotas.loadtest.plan.workload import Workload

CLIENT_ID = "bench"
RECORD = bytes(1000)
BATCH_BYTES = 60_000
PARTITIONS = 16
LARGE_RECORD = bytes(20_000)
"""For kafka-python: small records cost it more time than 20 MB/s leave."""
KEPT_RECORDS = 200
"""What a client of kafka-python may have under way: it has no bound of its own."""
QUOTA = 20e6
Stop = threading.Event


def librdkafka(bootstrap: str, stop: Stop) -> None:
    """Produce as fast as possible until the stop."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": CLIENT_ID,
            "acks": "1",
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.kbytes": 1024,
            "message.timeout.ms": 300_000,
            "log_level": 0,
        }
    )
    while not stop.is_set():
        try:
            producer.produce("bench", RECORD)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()


def kafka_python(bootstrap: str, stop: Stop) -> None:
    """Measure the same with kafka-python."""
    from kafka import KafkaProducer  # noqa: PLC0415 - only where it is asked for
    from kafka.errors import KafkaTimeoutError  # noqa: PLC0415 - likewise

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=CLIENT_ID,
        acks=1,
        linger_ms=20,
        batch_size=BATCH_BYTES,
        delivery_timeout_ms=300_000,
    )
    room = threading.Semaphore(KEPT_RECORDS)
    while not stop.is_set():
        if room.acquire(timeout=0.5):
            future = producer.send("bench", LARGE_RECORD)
            future.add_callback(lambda _: room.release())
            future.add_errback(lambda _: room.release())
    with suppress(KafkaTimeoutError):  # what is still under way is throttled
        producer.close(timeout=1)


@contextmanager
def java(bootstrap: str, connections: int, kafka: Kafka) -> Iterator[None]:
    """Kafka's own ProducerPerformance, a producer per thread of load, while the context lasts."""
    properties = [
        f"bootstrap.servers={bootstrap}",
        f"client.id={CLIENT_ID}",
        "acks=1",
        "linger.ms=5",
        f"batch.size={BATCH_BYTES}",
        f"max.request.size={BATCH_BYTES + 5000}",
        "buffer.memory=4194304",
        "delivery.timeout.ms=300000",
    ]
    arguments = ["--topic", "bench", "--num-records", "1000000000", "--record-size", "1000", "--throughput", "-1"]
    command = java_command(
        kafka.jars,
        "org.apache.kafka.tools.ProducerPerformance",
        [*arguments, "--command-property", *properties],
        options=["-Xmx128m", "-XX:+UseSerialGC"],
    )
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(connections)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def threads(work: Callable[[str, Stop], None], bootstrap: str, connections: int) -> Iterator[None]:
    """So many clients, a thread each, while the context lasts."""
    stop = threading.Event()
    running = [threading.Thread(target=work, args=(bootstrap, stop)) for _ in range(connections)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join()


def consumer(bootstrap: str, stop: Stop) -> None:
    """Read the topic again and again until the stop."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": CLIENT_ID,
            "group.id": "bench",
            "fetch.message.max.bytes": 65_536,
            "queued.max.messages.kbytes": 1024,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    start = [TopicPartition("bench", number, 0) for number in range(PARTITIONS)]
    reader.assign(start)
    while not stop.is_set():
        for message in reader.consume(1000, 0.2):
            if message.error() is not None:
                reader.seek(TopicPartition("bench", message.partition() or 0, 0))
    reader.close()


def charged(folder: Path, kind: str) -> list[tuple[float, int]]:
    """(time in ms, bytes) of every charge of a quota type, in the order of time."""
    rows = [json.loads(line) for path in folder.glob("*.jsonl*") for line in path.read_text().splitlines()]
    return sorted((float(row["ts_ms"]), row["bytes"]) for row in rows if row["quota_type"] == kind)


def one(kafka: Kafka, client: str, connections: int, seconds: float) -> str:
    """Measure one client library with N connections."""
    kind = "fetch" if client == "consumer" else "produce"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store_url = f"local:{folder / 'quotas.db'}"
        key = "consumer_byte_rate" if kind == "fetch" else "producer_byte_rate"
        cost.set_quota(store_url, **{key: QUOTA})
        running = stack.enter_context(
            running_daemon(
                upstream=kafka.bootstrap,
                store_url=store_url,
                window=cost.WINDOW,
                folder=folder,
                options=["--event-log", str(folder / "events"), "--event-log-rotate", "3600"],
            )
        )
        workers = {"librdkafka": librdkafka, "kafka-python": kafka_python, "consumer": consumer}
        load = (
            java(running.bootstrap, connections, kafka)
            if client == "java"
            else threads(workers[client], running.bootstrap, connections)
        )
        with load:
            time.sleep(seconds)
        time.sleep(1)
        acks = charged(folder / "events", kind)
    verdict = judge(
        acks,
        quota=QUOTA,
        window_ms=cost.WINDOW.samples * cost.WINDOW.window_ms,
        workload=Workload.CONSUME if kind == "fetch" else Workload.PRODUCE,
    )
    return f"{client:<14}{connections:>4} connections: {verdict.evidence}; holds: {verdict.ok}"


def fill(kafka: Kafka) -> None:
    """Make the topic and write 200 MB into it, for consumers to read."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("bench", PARTITIONS, 1, config={"retention.bytes": "200000000"})])["bench"].result(60)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.size": BATCH_BYTES, "linger.ms": 5})
    for number in range(200_000):
        producer.produce("bench", RECORD, partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.flush(60)
    producer.flush(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["librdkafka", "kafka-python", "java", "consumer"]
    parser.add_argument("--clients", nargs="+", choices=names, default=names, help="which (default: all)")
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 16, 200], help="how many (default 1 16 200)")
    parser.add_argument("--seconds", type=float, default=75.0, help="how long each runs (default 75: a window, 60 s)")
    arguments = parser.parse_args()
    with kafka_4() as kafka:
        fill(kafka)
        for client in arguments.clients:
            for connections in arguments.connections:
                if client == "java" and connections > 16:
                    print(f"{client:<14}{connections:>4} connections: left out, a Java process each")
                    continue
                print(one(kafka, client, connections, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
