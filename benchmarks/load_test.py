"""What the load tester itself costs, and how well it keeps time: `python benchmarks/load_test.py [--part ...]`.

- `speed`: unthrottled producers against one real broker, in 1 and in 4 processes at 1 KiB and 100 B: our raw client and
  our librdkafka client (through `load-test produce`), a bare loop over confluent-kafka, and Kafka's own
  ProducerPerformance. MB/s of payload, and CPU seconds per million records of generator and broker beside it, for they
  share the machine. Aim: the raw client has at least 0.95 of the best.
- `recorder`: what counting costs per record, as each client calls it. Aim: at most 1 us.
- `pacing`: how many records were sent by the end of a run, against how many were due. Aim: within 1 %.
- `clients`: 1,000 raw clients at once, without a warm-up: how late they sent, and what their books say. Aim: none late
  by more than 100 ms, none unsent. Twice, as the first one warms the broker.
- `memory`: what a recorder and the schedules hold after an hour, six hours and a day of virtual time. Aim: a plateau.

Rounds take turns, so that a busy machine is unfair to nobody; the best round counts. `others` is the CPU that other
processes took meanwhile, in cores.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.brokers.java_process import java_command
from tests.support.brokers.servers import Kafka, kafka_4

from kafka_quotas.loadtest.measurement.recorder import Recorder, room_for
from kafka_quotas.loadtest.plan.schedule import TICKS, BurstSchedule, PoissonSchedule, even_schedule

TOPIC = "bench"
PARTITIONS = 4
BATCH_BYTES = 1_000_000
PARTS = ("speed", "recorder", "pacing", "clients", "memory")
CLIENTS = 1000
LATE_US = 100_000
WARMUP_S = 2.0
RATES = (10, 1_000, 10_000, 50_000)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What some processes did together: payload MB/s, records, CPU seconds of them and of the broker, and of others."""

    megabytes_per_second: float
    records: int
    cpu_s: float
    broker_cpu_s: float
    others: float


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_of_all() -> float:
    """Return the CPU seconds that all processes of the machine have taken."""
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    user, nice, system = (int(field) for field in fields[1:4])
    return (user + nice + system) / _TICKS


def together(
    commands: list[list[str]], broker: int, read: Callable[[str], tuple[int, float]], record_size: int
) -> Outcome:
    """Run processes at the same time, and find records and records/s in what each printed by `read`."""
    broker_s, all_s, begin_s = cpu_of(broker), cpu_of_all(), time.monotonic()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    printed, cpu_s = [], 0.0
    for process in running:
        assert process.stdout is not None
        printed.append(process.stdout.read())
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu_s += usage.ru_utime + usage.ru_stime
    took_s = time.monotonic() - begin_s
    broker_s = cpu_of(broker) - broker_s
    others = (cpu_of_all() - all_s - broker_s - cpu_s) / took_s
    figures = [read(text) for text in printed]
    return Outcome(
        megabytes_per_second=sum(rate for _, rate in figures) * record_size / 1e6,
        records=sum(records for records, _ in figures),
        cpu_s=cpu_s,
        broker_cpu_s=broker_s,
        others=max(others, 0.0),
    )


def load_test(bootstrap: str, *, client: str, record_size: int, seconds: float, rate: str = "max") -> list[str]:
    """Return the command line of our own producer."""
    return [
        *(str(Path(sys.executable).with_name("kafka-quotas")), "load-test", "produce", "--output", "json"),
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--client", client, "--no-read-back"),
        *(
            "--record-size",
            str(record_size),
            "--duration",
            f"{seconds:g}s",
            "--warmup",
            f"{WARMUP_S:g}s",
            "--rate",
            rate,
        ),
    ]


def read_load_test(record_size: int, text: str) -> tuple[int, float]:
    """Return records in our own document, and records/s after the warm-up, in which connections are made."""
    (only,) = json.loads(text)["entities"]
    return only["records"]["acked"], only["verdict"]["achieved"] / only["wire_ratio"] / record_size


def bare(bootstrap: str, *, record_size: int, seconds: float) -> list[str]:
    """Return the command line of the bare loop."""
    return [sys.executable, __file__, "--bare", bootstrap, "--record-size", str(record_size), "--seconds", str(seconds)]


def bare_loop(bootstrap: str, record_size: int, seconds: float) -> None:
    """Print the records and records/s of a loop over confluent-kafka without any measuring."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    payload, produce = os.urandom(record_size), producer.produce
    produce(TOPIC, payload)
    producer.flush()  # connected
    begin_s, sent = time.monotonic(), 0
    while time.monotonic() - begin_s < seconds:
        for _ in range(500):
            try:
                produce(TOPIC, payload)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    acked = sent - len(producer)
    took_s = time.monotonic() - begin_s
    producer.purge()
    producer.flush(5)
    print(acked, acked / took_s)


def read_bare(text: str) -> tuple[int, float]:
    """Return records and records/s as the bare loop prints them."""
    records, rate = text.split()
    return int(records), float(rate)


def performance(kafka: Kafka, *, record_size: int, records: int) -> list[str]:
    """Return the command line of Kafka's own tool, with batches as large as ours."""
    settings = [f"bootstrap.servers={kafka.bootstrap}", "acks=1", "linger.ms=5", f"batch.size={BATCH_BYTES}"]
    arguments = [
        *("--topic", TOPIC, "--num-records", str(records), "--record-size", str(record_size)),
        *("--throughput", "-1", "--producer-props", *settings, "buffer.memory=134217728"),
    ]
    main_class = "org.apache.kafka.tools.ProducerPerformance"
    return java_command(kafka.jars, main_class, arguments, options=["-Xmx512m"])


def read_performance(text: str) -> tuple[int, float]:
    """Return records and records/s in the last line of Kafka's tool."""
    found = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec", text, re.MULTILINE)
    records, rate = found[-1]
    return int(records), float(rate)


def speed(kafka: Kafka, *, rounds: int, seconds: float, processes: tuple[int, ...]) -> None:
    """Print the table of contenders."""
    for record_size in (1024, 100):
        per_second = 60_000_000 // record_size // (1 if record_size > 100 else 2)  # what ProducerPerformance is given
        print(f"\n{record_size} B records, best of {rounds} rounds of {seconds:g} s; CPU seconds per million records")
        print("| generator | processes | MB/s | of the best | generator CPU | broker CPU | others, cores |")
        print("|---|---|---|---|---|---|---|")
        best: dict[tuple[str, int], Outcome] = {}
        for _ in range(rounds):
            for count in processes:
                for name, outcome in _round(kafka, record_size, seconds, count, int(per_second * seconds)):
                    known = best.get((name, count))
                    if known is None or outcome.megabytes_per_second > known.megabytes_per_second:
                        best[name, count] = outcome
        top = max(outcome.megabytes_per_second for outcome in best.values())
        for (name, count), outcome in best.items():
            millions = outcome.records / 1e6
            print(
                f"| {name} | {count} | {outcome.megabytes_per_second:.1f} | {outcome.megabytes_per_second / top:.2f} "
                f"| {outcome.cpu_s / millions:.2f} | {outcome.broker_cpu_s / millions:.2f} | {outcome.others:.2f} |",
                flush=True,
            )


def _round(kafka: Kafka, record_size: int, seconds: float, count: int, records: int) -> list[tuple[str, Outcome]]:
    """One round of every contender."""
    broker = kafka.servers[0].pid
    of_ours = {"record_size": record_size, "seconds": seconds}
    read_ours = partial(read_load_test, record_size)
    contenders = {
        "load-test, raw": (load_test(kafka.bootstrap, client="raw", **of_ours), read_ours),
        "load-test, librdkafka": (load_test(kafka.bootstrap, client="librdkafka", **of_ours), read_ours),
        "confluent-kafka, bare": (bare(kafka.bootstrap, **of_ours), read_bare),
        "ProducerPerformance": (
            performance(kafka, record_size=record_size, records=max(records // count, 1)),
            read_performance,
        ),
    }
    return [
        (name, together([command] * count, broker, read, record_size)) for name, (command, read) in contenders.items()
    ]


def recorder() -> None:
    """Print what counting costs per record, for each way in which clients do it."""
    count = 200_000
    print("\nrecorder cost, us per record")
    for name, records, latencies in (
        ("raw, batches of 1,000 records, 4 latencies each", 1000, 4),
        ("raw, batches of 10 records that were due together", 10, 0),
        ("librdkafka, every 100th record has its latency taken", 100, 1),
        ("raw, every record alone", 1, 0),
    ):
        seen = Recorder(start_ns=0, measure_from_ns=0)
        batches = max(count // records, 2000)
        begin_s = time.process_time()
        for number in range(batches):
            now_ns = number * 100_000
            acked_ns = now_ns + 900_000 + number % 997_000
            if not latencies:
                seen.answered(
                    acked_ns,
                    charged=records * 1024,
                    throttle_ms=0,
                    broker=1,
                    records=records,
                    size=records * 1024,
                    intended_ns=now_ns,
                    sent_ns=now_ns + 1000,
                )
                continue
            seen.response(now_ns, charged=records * 1024, throttle_ms=0)
            seen.acknowledged(now_ns, records=records, size=records * 1024)
            for _ in range(latencies):
                seen.latency(intended_ns=now_ns, sent_ns=now_ns + 1000, acked_ns=acked_ns, count=1)
        seen.fold()
        took_s = time.process_time() - begin_s
        print(f"- {name}: {took_s / batches / records * 1e6:.3f}", flush=True)


def pacing(kafka: Kafka, *, seconds: float) -> None:
    """Print the records acknowledged by the end against those due, for each rate and client."""
    print(f"\npacing error over {seconds:g} s, percent of the records due")
    print("| rate, records/s | raw | librdkafka |")
    print("|---|---|---|")
    for rate in RATES:
        cells = []
        for client in ("raw", "librdkafka"):
            command = load_test(kafka.bootstrap, client=client, record_size=100, seconds=seconds, rate=f"{rate}rec/s")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            document = json.loads(done.stdout)
            due = even_schedule(Fraction(rate)).due_count(int(document["elapsed_s"] * 1e9) - 1)
            sent = sum(entity["records"]["sent"] for entity in document["entities"])
            cells.append(f"{(sent / due - 1) * 100:+.2f}")
        print(f"| {rate:,} | " + " | ".join(cells) + " |", flush=True)


def clients(kafka: Kafka, *, seconds: float) -> None:
    """Print how late a thousand clients sent, each 2 records/s."""
    scenario = {
        "schema": "kafka-quotas.scenario/1",
        "name": "clients",
        "title": "a thousand raw clients",
        "duration": f"{seconds:g}s",
        "warmup": "0s",
        "topics": [{"name": "written", "partitions": PARTITIONS}],
        "entities": [
            {"client-id": "app-{n}", "count": CLIENTS, "does": "produce", "topic": "written"}
            | {"client": "raw", "rate": "2rec/s", "record-size": 100}
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clients.yaml"
        file.write_text(json.dumps(scenario), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("kafka-quotas")), "load-test", "run", str(file), "--yes"]
        options = ["--bootstrap-server", kafka.bootstrap, "--journal-dir", folder, "--output", "json"]
        all_s, begin_s = cpu_of_all(), time.monotonic()
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        busy = (cpu_of_all() - all_s) / (time.monotonic() - begin_s)
    entities = json.loads(done.stdout)["entities"]
    delays = [each["latency"]["schedule_delay"] for each in entities]
    books = {name: sum(each["books"][name] for each in entities) for name in ("due", "acknowledged", "unsent")}
    late = sum(delay["p99_us"] > LATE_US for delay in delays)
    longest_ms = max(delay["max_us"] for delay in delays) / 1000
    print(
        f"\n{CLIENTS:,} raw clients for {seconds:g} s: {late} late, by {longest_ms:.0f} ms at most; {books}", flush=True
    )
    print(f"all processes took {busy:.2f} cores meanwhile", flush=True)


def memory() -> None:
    """Print the memory held after an hour, six hours and a day, in the room of each of a hundred clients."""
    print("\nmemory held by a recorder and three schedules of one of 100 clients, KiB")
    for name, hours in (("an hour", 1), ("six hours", 6), ("a day", 24)):
        tracemalloc.start()
        seen = Recorder(start_ns=0, measure_from_ns=0, room=room_for(100))
        rate = Fraction(5)
        schedules = (
            even_schedule(rate),
            PoissonSchedule(ticks=even_schedule(rate * TICKS), seed=1),
            BurstSchedule(bursts=even_schedule(rate / 10), burst_size=10),
        )
        for index in range(hours * 3600 * 5):
            now_ns = schedules[1].intended_ns(index)
            seen.response(now_ns, charged=1000, throttle_ms=index % 7)
            seen.acknowledged(now_ns, records=1, size=1000)
            seen.latency(intended_ns=now_ns, sent_ns=now_ns + 1000, acked_ns=now_ns + 100_000 + index % 9973)
        due = [schedule.due_count(hours * 3600 * 1_000_000_000 - 1) for schedule in schedules]
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"- {name}: {held / 1024:,.0f} held, {peak / 1024:,.0f} at most; arrivals due {due}", flush=True)


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--bare", metavar="HOST:PORT", help=argparse.SUPPRESS)
    parser.add_argument("--record-size", type=int, default=1024, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        bare_loop(given.bare, given.record_size, given.seconds)
        return
    parts = given.part or PARTS
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; python {sys.version.split()[0]}")
    if "recorder" in parts:
        recorder()
    if "memory" in parts:
        memory()
    if {"speed", "pacing", "clients"} & set(parts):
        if shutil.which("java") is None:
            sys.exit("a real broker needs java")
        small = {"log.retention.bytes": "100000000", "log.segment.bytes": "50000000"}
        with kafka_4(properties={**small, "log.retention.check.interval.ms": "2000"}) as kafka:
            topic = NewTopic(TOPIC, PARTITIONS, 1)
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            admin.create_topics([topic])[TOPIC].result(30)
            if "pacing" in parts:
                pacing(kafka, seconds=given.seconds)
            if "clients" in parts:
                for _ in range(2):  # a broker that has just started takes the processors that the clients need
                    clients(kafka, seconds=given.seconds)
            if "speed" in parts:
                speed(kafka, rounds=given.rounds, seconds=given.seconds, processes=tuple(given.processes))


if __name__ == "__main__":
    main()
