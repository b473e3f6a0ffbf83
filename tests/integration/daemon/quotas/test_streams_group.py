"""A streams group (KIP-1071) whose internal topics a real broker makes: the controller charges them, and so do we."""

import dataclasses
import datetime as dt
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i32, i32Timedelta
from tests.support.brokers.appended_records import make_topic
from tests.support.brokers.servers import Kafka
from tests.support.brokers.wire_client import WireClient
from tests.support.daemon.process import running_daemon, set_quota
from tests.support.frames import kio_samples

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.wire.proxying.topics import DETAIL_START, MISSING_INTERNAL_TOPICS

PARTITIONS = 10
TIMEOUT_S = 60.0


class Member:
    """The one member of a streams group, over a connection of its own."""

    def __init__(self, address: str, name: str, source: str) -> None:
        self._client = WireClient(address, client_id=name)
        self._name = name
        self._id = str(uuid.uuid4())
        self._topology = _topology(name, source)

    def join(self) -> Any:
        """The response to the first heartbeat, once the broker coordinates the group."""
        pause, deadline = threading.Event(), time.monotonic() + TIMEOUT_S
        while True:
            answer = self._beat(0, topology=self._topology, rebalance_timeout_ms=60_000)
            if answer.error_code not in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress):
                assert answer.error_code == ErrorCode.none, (answer.error_code, answer.error_message)
                return answer
            assert time.monotonic() < deadline
            pause.wait(0.2)

    def beat(self, epoch: int) -> Any:
        """The response to a later heartbeat."""
        return self._beat(epoch, topology=None, rebalance_timeout_ms=-1)

    def close(self) -> None:
        self._client.close()

    def _beat(self, epoch: int, *, topology: Any, rebalance_timeout_ms: int) -> Any:
        tasks = () if topology else None
        request = dataclasses.replace(
            kio_samples.filled_request(ApiKey.STREAMS_GROUP_HEARTBEAT, 0),
            group_id=self._name,
            member_id=self._id,
            member_epoch=i32(epoch),
            endpoint_information_epoch=i32(0),
            instance_id=None,
            rack_id=None,
            rebalance_timeout=i32Timedelta.parse(dt.timedelta(milliseconds=rebalance_timeout_ms)),
            topology=topology,
            active_tasks=tasks,
            standby_tasks=tasks,
            warmup_tasks=tasks,
            process_id=self._id if topology else None,
            user_endpoint=None,
            client_tags=tasks,
            task_offsets=None,
            task_end_offsets=None,
            shutdown_application=False,
        )
        frame = self._client.exchange(kio_samples.request_frame(request, client_id=self._name))
        return kio_samples.decoded_response(frame, ApiKey.STREAMS_GROUP_HEARTBEAT, 0)


def _topology(name: str, source: str) -> Any:
    """A subtopology that reads a topic, repartitions it and keeps a store."""
    topology: Any = kio_samples.filled_request(ApiKey.STREAMS_GROUP_HEARTBEAT, 0).topology  # type: ignore[attr-defined]
    (subtopology, *_) = topology.subtopologies
    (topic, *_) = subtopology.state_changelog_topics
    made = dataclasses.replace(topic, replication_factor=i16(1), topic_configs=())
    changed = dataclasses.replace(
        subtopology,
        subtopology_id="0",
        source_topics=(source,),
        source_topic_regex=(),
        state_changelog_topics=(dataclasses.replace(made, name=f"{name}-store-changelog", partitions=i32(0)),),
        repartition_sink_topics=(),
        repartition_source_topics=(
            dataclasses.replace(made, name=f"{name}-x-repartition", partitions=i32(PARTITIONS)),
        ),
        copartition_groups=(),
    )
    return dataclasses.replace(topology, epoch=i32(0), subtopologies=(changed,))


@contextmanager
def member(address: str, name: str, source: str) -> Iterator[Member]:
    """A member, whose connection is closed at the end."""
    joined = Member(address, name, source)
    try:
        yield joined
    finally:
        joined.close()


@pytest.fixture(scope="module")
def source(kafka4: Kafka) -> str:
    """A topic to read, on a broker that coordinates groups already."""
    name = f"streams-source-{uuid.uuid4().hex[:6]}"
    make_topic(kafka4.bootstrap, name, partitions=PARTITIONS)
    consumer = Consumer({"bootstrap.servers": kafka4.bootstrap, "group.id": name})
    consumer.subscribe([name])
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    consumer.close()
    return name


def missing(answer: Any) -> list[str]:
    """The details of the statuses that name internal topics."""
    return [each.status_detail for each in answer.status or () if each.status_code == MISSING_INTERNAL_TOPICS]


def test_a_controller_counts_them_for_the_client(kafka4: Kafka, source: str, unique_name: str) -> None:
    entity = ["--entity-type", "clients", "--entity-name", unique_name]
    told = kafka4.run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", kafka4.bootstrap, "--alter", *entity, "--add-config", "controller_mutation_rate=1"],
    )
    assert told.returncode == 0, told.stderr
    with member(kafka4.bootstrap, unique_name, source) as joined:
        answer, deadline = joined.join(), time.monotonic() + TIMEOUT_S
        assert missing(answer)[0].startswith(DETAIL_START)
        while not any("throttling quota has been exceeded" in detail for detail in missing(answer)):
            assert time.monotonic() < deadline, missing(answer)
            answer = joined.beat(answer.member_epoch)
        assert answer.throttle_time == dt.timedelta(), "the client is not told of it otherwise"


def test_the_daemon_counts_them_for_the_client(kafka4: Kafka, source: str, unique_name: str, tmp_path: Path) -> None:
    set_quota(tmp_path, Entity.of(client_id=unique_name), controller_mutation_rate=1.0)
    options = ["--controller-quota-window-num", "3"]
    with running_daemon(tmp_path, upstream=kafka4.bootstrap, options=options) as daemon:
        with member(daemon.bootstrap, unique_name, source) as joined:
            answer, deadline = joined.join(), time.monotonic() + TIMEOUT_S
            assert missing(answer)[0].startswith(DETAIL_START)
            while daemon.status().counters["mutation_partitions"] < 2 * PARTITIONS:
                assert time.monotonic() < deadline, daemon.status()
                answer = joined.beat(answer.member_epoch)
        (row,) = [row for row in daemon.status().buckets if row.client_id == unique_name]
        assert row.quota == "controller_mutation_rate"
        assert row.observed < 0, "what they cost is owed"
