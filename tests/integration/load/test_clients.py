"""The raw clients of a load test against brokers that do what a test wants: throttle, refuse, end, forget a topic."""

import struct
import threading
import time
from typing import Any

import pytest
from kafka.record.memory_records import MemoryRecords
from tests.support.brokers.fake_broker import fake_broker, receive_frame
from tests.support.brokers.java_process import free_port
from tests.support.brokers.topic_broker import METADATA, PRODUCE, TopicBroker
from tests.support.load.raw_load import RUN_ID, raw, run_raw, talking

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.cluster_check import ClusterUnreachableError, LoadRefusedError
from kafka_quotas.loadtest.clients.raw.connected_client import CONNECTION_LOST
from kafka_quotas.loadtest.clients.raw.floods import CLOSED, NOT_REFUSED
from kafka_quotas.loadtest.plan.plan import ClientLoad
from kafka_quotas.loadtest.plan.workload import Loop, MutationFlood, MutationKind, RequestFlood, Workload

PARTITIONS = 3
EXCEEDED = "THROTTLING_QUOTA_EXCEEDED"
NOT_AUTHORIZED, QUOTA_EXCEEDED = 29, 89


def with_topic(**more: Any) -> TopicBroker:
    return TopicBroker(topics={"t": PARTITIONS}, **more)


def stamps(broker: TopicBroker) -> list[tuple[int, int, int]]:
    """Run id, entity and sequence of every record that the broker took."""
    batches = (batch for _, _, records in broker.taken for batch in MemoryRecords(records))
    return [struct.unpack_from(">QIQ", record.value) for batch in batches for record in batch]


def test_paced_producers_send_every_record_once_with_its_stamp() -> None:
    broker = with_topic()
    entities = [
        raw(Workload.PRODUCE, client_id=None, topic="t", rate=200, record_size=40, acks="1"),
        raw(Workload.PRODUCE, client_id="zipped", topic="t", rate=100, record_size=90, compression="gzip"),
    ]

    with talking(broker) as listening:
        clients = run_raw(listening.address, entities, seconds=1.5)

    for index, client in enumerate(clients):
        recorder = client.recorder
        assert client.error is None
        assert recorder.acked > 0
        assert recorder.sent == recorder.acked + client.unfinished
        found = sorted(sequence for run_id, entity, sequence in stamps(broker) if (run_id, entity) == (RUN_ID, index))
        assert found[: recorder.acked] == list(range(recorder.acked))
        assert len(found) == len(set(found))
    assert {partition for _, partition, _ in broker.taken} == set(range(PARTITIONS))


def test_a_cooperative_client_waits_for_its_throttle_time() -> None:
    broker = with_topic(throttle_ms=500)

    with talking(broker) as listening:
        (client,) = run_raw(listening.address, [closed(honor_throttle=True)], seconds=2.2)

    recorder = client.recorder
    assert 1 <= recorder.response_count <= 5  # one each 500 ms, where nothing else holds it up
    assert recorder.throttle_count == recorder.response_count
    assert recorder.throttle.max_ms == pytest.approx(500, rel=0.01)


def test_another_client_goes_on_as_fast_as_it_is_answered() -> None:
    broker = with_topic(throttle_ms=60_000)

    with talking(broker) as listening:
        run_raw(
            listening.address,
            [closed(honor_throttle=False)],
            seconds=60.0,
            until=lambda: broker.asked.count((PRODUCE, 7)) >= 10,
        )

    assert broker.asked.count((PRODUCE, 7)) >= 10


def closed(**more: Any) -> ClientLoad:
    return raw(Workload.PRODUCE, topic="t", record_size=100, batch_bytes=16_000, loop=Loop.CLOSED, **more)


def test_a_producer_goes_on_after_its_connection_ended() -> None:
    broker = with_topic()
    entity = raw(Workload.PRODUCE, topic="t", rate=200, record_size=40, acks="1")

    with talking(broker, ends=lambda count: count == 20) as listening:
        (client,) = run_raw(
            listening.address, [entity], seconds=60.0, until=lambda: broker.asked.count((PRODUCE, 7)) > 30
        )

    recorder = client.recorder
    assert client.error is None
    assert set(recorder.failures) == {CONNECTION_LOST}
    assert broker.asked.count((PRODUCE, 7)) > 30  # it came back
    assert recorder.acked + recorder.failures.total() + client.unfinished == recorder.sent


def test_a_producer_with_a_request_timeout_retries_what_is_not_answered_in_time() -> None:
    broker = with_topic()
    entity = raw(Workload.PRODUCE, topic="t", rate=200, record_size=40, acks="1")

    def keep_waiting(count: int) -> bool:
        if count == 20:
            time.sleep(1.0)
        return False

    with talking(broker, ends=keep_waiting) as listening:
        (client,) = run_raw(
            listening.address,
            [entity],
            seconds=60.0,
            properties={"request.timeout.ms": "300"},
            until=lambda: broker.asked.count((PRODUCE, 7)) > 40,
        )

    recorder = client.recorder
    found = sorted(sequence for *_, sequence in stamps(broker))
    assert client.error is None
    assert not recorder.failures
    assert recorder.acked + client.unfinished == recorder.sent
    assert set(range(recorder.acked)) <= set(found)
    assert len(found) > len(set(found))  # the broker took a batch that it answered too late, and took it again


def test_a_request_timeout_is_a_number_of_milliseconds() -> None:
    with pytest.raises(UsageError, match=r"request.timeout.ms is not a number of milliseconds: '3s'"):
        run_raw("127.0.0.1:1", [raw(Workload.PRODUCE, topic="t")], seconds=1.0, properties={"request.timeout.ms": "3s"})


def test_a_topic_that_is_deleted_in_the_middle_ends_the_run() -> None:
    broker = with_topic()

    def forget(count: int) -> bool:
        if count == 10:
            broker.topics.clear()
            broker.refuses["t"] = 3
        return False

    with talking(broker, ends=forget) as listening:
        (client,) = run_raw(listening.address, [raw(Workload.PRODUCE, topic="t", rate=100)], seconds=30.0)

    assert isinstance(client.error, LoadRefusedError)
    assert "topic t does not exist" in client.error.message
    assert set(client.recorder.failures) == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_producer_that_may_not_write_ends_the_run() -> None:
    broker = with_topic()

    def refuse(_count: int) -> bool:
        if any(key == METADATA for key, _ in broker.asked):
            broker.refuses["t"] = NOT_AUTHORIZED
        return False

    with talking(broker, ends=refuse) as listening:
        (client,) = run_raw(listening.address, [raw(Workload.PRODUCE, topic="t", rate=100)], seconds=30.0)

    assert isinstance(client.error, LoadRefusedError)
    assert "Write on topic t is missing" in client.error.message


@pytest.mark.parametrize(("refused", "failures"), [(True, set()), (False, {NOT_REFUSED})])
def test_a_flood_of_unauthorised_requests_expects_to_be_refused(refused: bool, failures: set[str]) -> None:
    broker = with_topic(refuses={"t": NOT_AUTHORIZED} if refused else {})
    flood = RequestFlood(api="Produce", unauthorised=True)

    with talking(broker) as listening:
        entity = raw(Workload.REQUESTS, topic="t", rate=50, flood=flood, record_size=100)
        (client,) = run_raw(listening.address, [entity], seconds=1.5)

    assert client.recorder.charged == client.recorder.response_count > 0
    assert set(client.recorder.failures) == failures


class ThrottlingBroker(TopicBroker):
    """Refuses a topic by its quota as often as it is told."""

    refusals = 0

    def answers(self, data: bytes) -> bytes:
        """The responses to some requests, in order."""
        is_create = struct.unpack_from(">h", data, 4)[0] == 19
        self.refuses = {"f-000001": QUOTA_EXCEEDED} if is_create and self.refusals > 0 else {}
        self.throttle_ms = 200 if self.refuses else 0
        self.refusals -= is_create
        return super().answers(data)


def mutating(broker: TopicBroker, **more: Any) -> Any:
    flood = MutationFlood(
        kind=MutationKind.CREATE, topics_per_request=2, partitions_per_topic=3, total_topics=2, prefix="f-", **more
    )
    with talking(broker) as listening:
        (client,) = run_raw(listening.address, [raw(Workload.MUTATE, rate=1, flood=flood)], seconds=20.0)
    assert client.error is None
    return client.recorder


def test_topics_that_a_quota_refused_are_asked_for_again_after_the_throttle_time() -> None:
    broker = ThrottlingBroker()
    broker.refusals = 2

    recorder = mutating(broker)

    assert broker.topics == {"f-000000": 3, "f-000001": 3}
    assert (recorder.sent, recorder.acked, recorder.charged) == (2, 2, 6)
    assert (recorder.throttle_count, recorder.throttle_sum_us) == (2, 400_000)
    assert recorder.service_times.summary().min_us >= 400_000 * 0.999
    assert not recorder.failures


@pytest.mark.parametrize("given_up", [{"retry_quota_violation": False}, {"api_timeout_ms": 500}])
def test_only_the_topics_that_were_refused_have_failed_in_the_end(given_up: dict[str, Any]) -> None:
    broker = ThrottlingBroker()
    broker.refusals = 1000

    recorder = mutating(broker, **given_up)

    assert broker.topics == {"f-000000": 3}
    assert dict(recorder.failures) == {EXCEEDED: 1}
    assert (recorder.acked, recorder.charged) == (1, 3)


def test_connections_that_are_turned_away_are_the_doing_of_a_quota_where_there_is_one() -> None:
    taken = threading.Semaphore(5)

    def answer_some(connection: Any) -> None:
        frame = receive_frame(connection)
        if taken.acquire(blocking=False):
            connection.sendall(struct.pack(">i", 14) + frame[8:12] + struct.pack(">hii", 0, 0, 0))

    with fake_broker(answer_some) as listening:
        (limited,) = run_raw(
            listening.address,
            [raw(Workload.CONNECT, rate=20, quota=5.0)],
            seconds=60.0,
            until=lambda: listening.accepted >= 15,
        )
        (free,) = run_raw(
            listening.address, [raw(Workload.CONNECT, rate=20)], seconds=60.0, until=lambda: listening.accepted >= 25
        )

    assert 0 < limited.recorder.acked == limited.recorder.charged <= 5
    assert limited.recorder.throttle_count > 0
    assert not limited.recorder.failures
    assert set(free.recorder.failures) == {CLOSED}


def test_a_port_where_nothing_listens_is_told_as_trouble() -> None:
    (client,) = run_raw(f"127.0.0.1:{free_port()}", [raw(Workload.PRODUCE, topic="t")], seconds=0.5)

    assert client.recorder.sent == 0
    assert isinstance(client.trouble, ClusterUnreachableError)
    assert "connection refused" in client.trouble.message or "connect call failed" in client.trouble.message.lower()
