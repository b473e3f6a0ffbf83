"""Groups in front of a real broker: a program with generated client-ids, two workers, and a fleet beside one daemon."""

import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.brokers.appended_records import appended, make_topic
from tests.support.brokers.java_process import java_command
from tests.support.brokers.maven import KAFKA_4, KAFKA_STREAMS, jars
from tests.support.brokers.servers import Kafka
from tests.support.daemon.greedy_producer import acknowledgements
from tests.support.daemon.process import DaemonProcess, running_daemon
from tests.support.processes.awaiting import await_true

from kafka_quotas.enforcement.control.client import RefusedError, ask_reload
from kafka_quotas.loadtest.plan.client_verdict import judge

THREADS = 32
RECORD_BYTES = 2000
STREAMS_LIMIT = 150_000.0
STREAMS_RECORDS = 2000
TEAM_LIMIT = 1_000_000.0
GUARANTEED = 700_000.0
DURATION_S = 31.0
PROGRAM = Path(__file__).parents[3] / "support" / "java" / "StreamsCopy.java"


@contextmanager
def streams(bootstrap: str, name: str, source: str, target: str) -> Iterator[None]:
    """A Kafka Streams program that copies a topic with 32 threads, until the end."""
    command = java_command(jars(KAFKA_4), str(PROGRAM), [bootstrap, name, source, target, str(THREADS)])
    command[command.index("-cp") + 1] += f":{jars(KAFKA_STREAMS)}/*"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def filled(bootstrap: str, topic: str) -> None:
    """Make a topic with a partition per thread, and fill it."""
    make_topic(bootstrap, topic, partitions=THREADS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(STREAMS_RECORDS):
        producer.produce(topic, bytes(RECORD_BYTES), partition=number % THREADS)
    assert producer.flush(240) == 0


@pytest.mark.measuring
def test_a_streams_program_with_generated_client_ids_is_held_by_one_line_of_policy(
    kafka4: Kafka, tmp_path: Path, unique_name: str
) -> None:
    source, target, events = f"{unique_name}-source", f"{unique_name}-target", tmp_path / "events"
    filled(kafka4.bootstrap, source)
    make_topic(kafka4.bootstrap, target, partitions=THREADS)
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f'[[group]]\nname = "copy"\nproducer_byte_rate = {STREAMS_LIMIT:.0f}\n'
        f'members = [{{ client_id_prefix = "{unique_name}-" }}]\n'
    )
    options = ("--policy", str(policy), "--event-log", str(events))
    with (
        running_daemon(tmp_path, upstream=kafka4.bootstrap, options=options) as daemon,
        streams(daemon.bootstrap, unique_name, source, target),
    ):
        daemon.wait_until(lambda status: any(row.entity == "group copy" for row in status.throttled))

        def copied() -> int:
            return sum(1 for _ in appended(kafka4.bootstrap, target, partitions=THREADS))

        await_true(lambda: copied() == STREAMS_RECORDS, "everything is copied", timeout_s=300)
        buckets = {(row.user, row.client_id) for row in daemon.status().buckets}
    assert (":group", "copy") in buckets

    records = sorted(record.at_ms for record in appended(kafka4.bootstrap, target, partitions=THREADS))
    # From the first second's burst on; what each thread sends at once is a little more than the records in it.
    begin_ms, end_ms = records[len(records) // 4], records[-1]
    rate = sum(RECORD_BYTES for at_ms in records if begin_ms < at_ms <= end_ms) / (end_ms - begin_ms) * 1000
    assert 0.75 * STREAMS_LIMIT < rate < 1.02 * STREAMS_LIMIT


def write_policy(path: Path, team: str) -> None:
    path.write_text(
        f'[[group]]\nname = "{team}"\nproducer_byte_rate = {TEAM_LIMIT:.0f}\n\n'
        f'[[group]]\nname = "{team}/app"\nmembers = [{{ client_id_prefix = "{team}-app-" }}]\n'
        f"guaranteed = {{ producer_byte_rate = {GUARANTEED:.0f} }}\n\n"
        f'[[group]]\nname = "{team}/rest"\nmembers = [{{ client_id_prefix = "{team}-rest-" }}]\n'
    )


def produced(daemons: Sequence[DaemonProcess], team: str) -> dict[str, list[tuple[float, int]]]:
    """Return what eight greedy producers got, two with a guaranteed rate and six without."""
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    with ThreadPoolExecutor(8) as pool:
        names = [*(("app", number) for number in range(2)), *(("rest", number) for number in range(6))]
        running = {
            (group, number): pool.submit(
                acknowledgements,
                daemons[number % len(daemons)].bootstrap,
                team,
                f"{team}-{group}-{number}",
                duration_s=DURATION_S,
                # Two records a request: what frames them, and is charged too, is less than 1 %.
                properties={"batch.size": "21000", "linger.ms": "1", "max.in.flight": "1"},
            )
            for group, number in names
        }
        for (group, _), each in running.items():
            found[group] += each.result()
    return {group: sorted(acks) for group, acks in found.items()}


def ratios(acks: dict[str, list[tuple[float, int]]]) -> tuple[float, float]:
    """Return what the group with a guaranteed rate and both together got, as parts of theirs, by throttle cycles."""
    everything = sorted(ack for each in acks.values() for ack in each)
    return (
        judge(acks["app"], quota=GUARANTEED, window_ms=3000).ratio,
        judge(everything, quota=TEAM_LIMIT, window_ms=3000).ratio,
    )


@pytest.mark.measuring
@pytest.mark.parametrize("members", [1, pytest.param(3, marks=pytest.mark.long)])
def test_workers_and_a_fleet_hold_groups_as_one_process_does(
    kafka4_cluster: Kafka, tmp_path: Path, unique_name: str, members: int
) -> None:
    control = f"{unique_name}-control"
    with ExitStack() as stack:

        def started(number: int, team: str, *options: str) -> DaemonProcess:
            folder = tmp_path / f"{'alone' if team == control else 'member'}{number}"  # short, for its socket
            folder.mkdir()
            write_policy(folder / "policy.toml", team)
            common = ("--scope", "cluster", "--policy", str(folder / "policy.toml"))
            return stack.enter_context(
                running_daemon(folder, upstream=kafka4_cluster.bootstrap, options=(*common, *options))
            )

        fleet = () if members == 1 else ("--fleet", f"kafka://{kafka4_cluster.bootstrap}/fleet-{unique_name}")
        daemons = [started(number, unique_name, "--workers", "2", *fleet) for number in range(members)]
        alone = started(0, control)
        for each in daemons:
            each.wait_until(lambda status: status.fleet is None or status.fleet.members == members)
        make_topic(alone.bootstrap, unique_name)
        make_topic(alone.bootstrap, control)
        with ThreadPoolExecutor(2) as pool:
            theirs = pool.submit(produced, [alone], control)
            ours = pool.submit(produced, daemons, unique_name)
            found, expected = ratios(ours.result()), ratios(theirs.result())
    held = pytest.approx((1.0, 1.0), rel=0.02)
    assert expected == held
    assert found == (held if members == 1 else pytest.approx(expected, rel=0.06))


def test_a_broken_policy_changes_nothing_at_a_reload(kafka4: Kafka, tmp_path: Path, unique_name: str) -> None:
    policy = tmp_path / "policy.toml"
    write_policy(policy, unique_name)
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=("--policy", str(policy))) as daemon:
        assert daemon.status().store.limits == 2
        policy.write_text(policy.read_text().replace(f"{GUARANTEED:.0f}", f"{2 * TEAM_LIMIT:.0f}"))
        with pytest.raises(RefusedError, match="are guaranteed producer_byte_rate 2000000 of 1000000"):
            ask_reload(daemon.control)
        assert daemon.status().store.limits == 2
        policy.write_text('[[group]]\nname = "other"\nproducer_byte_rate = 5\nmembers = [{ user = "x" }]\n')
        assert ask_reload(daemon.control).limits == 1
