"""SIGKILL for the broker, the daemon and the store in turn, under load.

Clients recover, nothing that was acknowledged is lost or there twice, and the event log goes on in its topic, which the
broker keeps as well.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.support.brokers.appended_records import appended, make_topic
from tests.support.brokers.java_process import free_port
from tests.support.brokers.probes import kafka_brokers, zookeeper_serves
from tests.support.brokers.servers import kafka_4, zookeeper_process
from tests.support.brokers.zookeeper_limit import set_producer_limit
from tests.support.daemon.process import DaemonProcess
from tests.support.load.numbered_load import LibrdkafkaLoad, number_of
from tests.support.processes.awaiting import await_true

from kafka_quotas.core.model.entity import Entity

TIMEOUT_S = 240.0
CLIENT_ID = "load"
QUOTA = 2_000_000.0
EVENTS = "quota-events"
NOT_YET = {
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
"""What a broker that was started again just now answers until it leads its partitions."""


@contextmanager
def daemon(folder: Path, *, port: int, upstream: str, store: str) -> Iterator[DaemonProcess]:
    """A daemon that is always at the same place, and logs to a topic of the broker behind it."""
    started = DaemonProcess(
        [
            *("--upstream", upstream, "--listen", f"127.0.0.1:{port}", "--broker-address", f"1={port}"),
            *("--store", store),
            *("--control", str(folder / "c.sock"), "--state-file", str(folder / "state")),
            *("--event-log", f"kafka://{upstream}/{EVENTS}"),
        ]
    )
    try:
        yield started
    finally:
        started.stop()


def every_charge_is_in_the_topic(process: DaemonProcess, bootstrap: str) -> None:
    """Wait until the topic has what the daemon has logged by now, whatever became of its broker meanwhile."""
    counters = process.status().counters
    assert counters["events_dropped"] == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": EVENTS})
    try:
        await_true(lambda: events_in(consumer) >= counters["events_logged"] > 0, "the events are there")
    finally:
        consumer.close()


def events_in(consumer: Consumer) -> int:
    """Return how many records the topic of events has, as far as its broker says so by now."""
    try:
        first, behind = consumer.get_watermark_offsets(TopicPartition(EVENTS, 0), timeout=TIMEOUT_S / 10)
    except KafkaException as error:
        if error.args[0].code() in NOT_YET:
            return 0
        raise
    return int(behind) - int(first)


def limits(process: DaemonProcess) -> int:
    return process.status().store.limits


@pytest.mark.timeout(900)  # on a busy machine each start of a server takes a minute
def test_broker_daemon_and_store_are_killed_in_turn(tmp_path: Path, unique_name: str) -> None:
    port = free_port()
    with zookeeper_process() as (address, zookeeper), kafka_4(quick_start=True) as kafka:
        place = {"port": port, "upstream": kafka.bootstrap, "store": f"zk://{address}"}
        set_producer_limit(address, Entity.of(client_id=CLIENT_ID), QUOTA)
        with daemon(tmp_path, **place) as first:
            make_topic(first.bootstrap, unique_name)
            assert limits(first) == 1
            load = LibrdkafkaLoad(first.bootstrap, unique_name, CLIENT_ID)
            try:
                load.goes_on()
                (broker,) = kafka.servers
                broker.kill()
                broker.start_again()
                broker.wait_ready(lambda: kafka_brokers(kafka.bootstrap) == 1)
                load.goes_on()
                every_charge_is_in_the_topic(first, kafka.bootstrap)
                first.send(signal.SIGKILL)
                first.wait()
                with daemon(tmp_path, **place) as second:
                    load.goes_on()
                    zookeeper.kill()
                    second.wait_until(lambda status: status.store.trouble is not None, timeout_s=TIMEOUT_S)
                    load.goes_on()
                    assert limits(second) == 1
                    zookeeper.start_again()
                    zookeeper.wait_ready(lambda: zookeeper_serves(address))
                    second.wait_until(lambda status: status.store.trouble is None, timeout_s=TIMEOUT_S)
                    load.goes_on()
                    assert limits(second) == 1
                    load.stop()
                    records = appended(second.bootstrap, unique_name)
                    found = Counter(number_of(record.value)[1] for record in records)
            finally:
                load.give_up()
    assert load.failures == []
    assert [number for number, times in found.items() if times > 1] == []
    assert Counter(load.acknowledged) - found == Counter()
