"""The topic of a fleet on a real cluster: what clients may do to it, forged reports in it, and its end."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import DaemonProcess, running_daemon, set_quota
from tests.support.processes.awaiting import await_true
from tests.support.processes.figures import resident_bytes

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.enforcement.control.client import ask_reload
from kafka_quotas.enforcement.sharing.fleet import INTERVAL_MS
from kafka_quotas.enforcement.sharing.membership import DELIVERY_MS
from kafka_quotas.enforcement.sharing.report import MAX_REPORT_BYTES, Entry, Report, read_report, write_report
from kafka_quotas.enforcement.telemetry.status import FleetRow

SECRET = "0123456789abcdef" * 2
UNDER_WAY = 2 + DELIVERY_MS // INTERVAL_MS
"""More reports than a member has sent that are not in the topic: it drops what is not delivered in time."""


class Fleet:
    """Two members with a secret, of which the second has workers, and their topic."""

    def __init__(self, cluster: Kafka, topic: str, daemons: list[DaemonProcess], secret: Path) -> None:
        self.cluster, self.topic, self.daemons, self.secret = cluster, topic, daemons, secret

    def rows(self) -> list[FleetRow]:
        rows = [daemon.status().fleet for daemon in self.daemons]
        return [row for row in rows if row is not None]

    def reports(self, back: int) -> Iterator[Report]:
        """The reports in the topic from so many before its end on, to be closed."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": self.topic})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0))
            consumer.assign([TopicPartition(self.topic, 0, end - back)])
            while True:
                (record,) = consumer.consume(1, 60)
                value = record.value()
                assert isinstance(value, bytes)
                yield read_report(value)
        finally:
            consumer.close()

    def last_report(self) -> Report:
        with closing(self.reports(1)) as reports:
            return next(reports)

    def await_older_reports(self) -> None:
        """Wait until both members have read every report that was made before the call."""
        with closing(self.reports(0)) as reports:
            counts = Counter[int]()
            while len(counts) < len(self.daemons) or min(counts.values()) < UNDER_WAY:
                counts[next(reports).member] += 1
        read = [row.refused["too_long"] for row in self.rows()]
        self.write(bytes(MAX_REPORT_BYTES + 1))
        for daemon, before in zip(self.daemons, read, strict=True):
            daemon.wait_until(
                lambda status, before=before: status.fleet is not None and status.fleet.refused["too_long"] > before
            )

    def write(self, *reports: bytes) -> None:
        """Write to the topic as somebody does who reaches the cluster without a daemon."""
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "batch.size": 100_000})
        for report in reports:
            producer.produce(self.topic, report, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert errors == [None] * len(reports)


@pytest.fixture
def fleet(kafka4_cluster: Kafka, tmp_path: Path, unique_name: str) -> Iterator[Fleet]:
    set_quota(tmp_path, Entity.of(client_id=unique_name), producer_byte_rate=1_000_000.0)
    topic, secret = f"fleet-{unique_name}", tmp_path / "secret"
    secret.write_text(SECRET)
    with ExitStack() as stack:
        daemons = []
        for workers in ("1", "2"):
            folder = tmp_path / workers
            folder.mkdir()
            options = ("--fleet", f"kafka://{kafka4_cluster.bootstrap}/{topic}", "--fleet-secret-file", str(secret))
            daemon = running_daemon(
                folder,
                upstream=kafka4_cluster.bootstrap,
                store=f"local:{tmp_path / 'quotas.db'}",
                options=(*options, "--workers", workers),
            )
            daemons.append(stack.enter_context(daemon))
        for daemon in daemons:
            daemon.wait_until(lambda status: status.fleet is not None and status.fleet.members == 2)
        yield Fleet(kafka4_cluster, topic, daemons, secret)


def refused(futures: dict[Any, Any]) -> KafkaError:
    """Return the error of a request about one thing."""
    ((_, future),) = futures.items()
    with pytest.raises(KafkaException) as error:
        future.result(60)
    kafka_error = error.value.args[0]
    assert isinstance(kafka_error, KafkaError)
    return kafka_error


def produced(daemon: DaemonProcess, topic: str) -> int:
    """Return the error code of a record for a topic."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": daemon.bootstrap})
    producer.produce(
        topic, b"forged", partition=0, on_delivery=lambda error, _: codes.append(error.code() if error else 0)
    )
    assert producer.flush(60) == 0
    return codes[0]


def test_no_client_changes_the_topic_through_any_member(fleet: Fleet) -> None:
    for daemon in fleet.daemons:
        assert produced(daemon, fleet.topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        admin = AdminClient({"bootstrap.servers": daemon.bootstrap})
        assert fleet.topic in admin.list_topics(timeout=60).topics
        assert refused(admin.delete_topics([fleet.topic])).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert refused(admin.create_partitions([NewPartitions(fleet.topic, 3)])).code()
        assert refused(admin.delete_records([TopicPartition(fleet.topic, 0, -1)], request_timeout=5.0)).code()
        setting = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, fleet.topic, incremental_configs=[setting])
        assert refused(admin.incremental_alter_configs([resource])).code()
        daemon.wait_until(lambda status: status.counters["fleet_topic_refusals"] >= 5)
        assert daemon.lines("a client may not change the fleet's topic", fleet.topic)
    assert [row.members for row in fleet.rows()] == [2, 2]
    metadata = AdminClient({"bootstrap.servers": fleet.cluster.bootstrap}).list_topics(timeout=60).topics[fleet.topic]
    assert len(metadata.partitions) == 1


def test_reports_that_nobody_signed_move_nothing_and_take_no_memory(fleet: Fleet) -> None:
    before = [resident_bytes(daemon.pid) for daemon in fleet.daemons]
    last = replace(fleet.last_report(), signed=False)
    buckets = tuple(
        Entry(bucket=each, total=1e9, rate=1e6, recent=1e6, age_ms=5, waiting=65_535) for each in range(30_000)
    )
    many = [write_report(replace(last, member=1000 + each, name=f"phantom-{each}", entries=())) for each in range(2000)]
    long = [write_report(replace(last, member=7, entries=buckets))[:130_000] for _ in range(130)]
    ends = [write_report(replace(last, sequence=2**64 - 1, leaves=True, entries=()))]
    fleet.write(*many, *long, *ends)
    for daemon in fleet.daemons:
        daemon.wait_until(
            lambda status: (
                status.fleet is not None and status.fleet.refused["unsigned"] + status.fleet.refused["too_many"] >= 2000
            )
        )
    for daemon, resident in zip(fleet.daemons, before, strict=True):
        assert resident_bytes(daemon.pid) < resident + 50 * 1024 * 1024
        assert len(daemon.lines("fleet: a member is not trusted")) <= 110
    assert [row.members for row in fleet.rows()] == [2, 2]


def test_a_secret_is_changed_without_losing_a_member(fleet: Fleet) -> None:
    new = "fedcba9876543210" * 2
    for content in (f"{SECRET}\n{new}", f"{new}\n{SECRET}", new):
        if SECRET not in content:
            fleet.await_older_reports()
        fleet.secret.write_text(content)
        for daemon in fleet.daemons:
            ask_reload(daemon.control)
    for daemon in fleet.daemons:
        assert not daemon.lines("fleet: a member is lost")
        assert not daemon.lines("fleet: a member is not trusted")


def test_a_topic_that_is_deleted_is_made_again_and_the_members_find_each_other(fleet: Fleet) -> None:
    admin = AdminClient({"bootstrap.servers": fleet.cluster.bootstrap})
    heard = [row.received_bytes for row in fleet.rows()]
    admin.delete_topics([fleet.topic])[fleet.topic].result(60)
    for daemon, before in zip(fleet.daemons, heard, strict=True):
        daemon.wait_until(
            lambda status, before=before: status.fleet is not None and status.fleet.received_bytes > before + 2000
        )
        daemon.wait_until(
            lambda status: status.fleet is not None and status.fleet.members == 2 and not status.fleet.cut_off
        )
    await_true(lambda: fleet.topic in admin.list_topics(timeout=60).topics, "the topic is there again")


def test_members_log_in_at_the_topic_by_kafkas_own_properties(
    kafka4_cluster: Kafka, tmp_path: Path, unique_name: str
) -> None:
    set_quota(tmp_path, Entity.of(client_id=unique_name), producer_byte_rate=1_000_000.0)
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    token = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{module} unsecuredLoginStringClaim_sub=admin;"}
    with ExitStack() as stack:
        daemons = []
        for name, login in {"password": {}, "token": token}.items():
            folder = tmp_path / name
            folder.mkdir()
            file = folder / "fleet.properties"
            properties = {**kafka4_cluster.client_properties("admin"), **login}
            file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            daemon = running_daemon(
                folder,
                upstream=kafka4_cluster.bootstrap,
                store=f"local:{tmp_path / 'quotas.db'}",
                options=(
                    *("--fleet", f"kafka://{kafka4_cluster.sasl_bootstrap}/fleet-{unique_name}"),
                    *("--fleet-config", str(file)),
                ),
            )
            daemons.append(stack.enter_context(daemon))
        for daemon in daemons:
            daemon.wait_until(lambda status: status.fleet is not None and status.fleet.members == 2)
            fleet = daemon.status().fleet
            assert fleet is not None
            assert (fleet.trouble, fleet.cut_off) == (None, False)
