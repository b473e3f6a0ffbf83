"""What raw clients of a load test send, against an independent implementation of the same messages."""

import struct

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.consumer import FetchRequest as TheirFetch
from kafka.protocol.consumer import FetchResponse, ListOffsetsRequest
from kafka.protocol.producer import ProduceRequest as TheirProduce
from kafka.record.memory_records import MemoryRecords

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.raw.floods import FLOOD_APIS, FloodFrame, check_flood
from kafka_quotas.loadtest.clients.raw.producer import ProduceFrames, RecordBatch
from kafka_quotas.loadtest.measurement.delivery import STAMP
from kafka_quotas.loadtest.plan.workload import RequestFlood
from kafka_quotas.wire.client.admin import (
    CreatePartitions,
    EndOffset,
    NewTopic,
    StrictCreateTopics,
    StrictDeleteTopics,
    TopicMutation,
)
from kafka_quotas.wire.client.records import FetchRequest, ProduceRequest, read_records_answer
from kafka_quotas.wire.client.request import read_answer, request_frame

OWNER = (2**64 - 1, 999)
PADDING = b"some padding, over and over. "


def batch_of(record_size: int, capacity: int, *, compressed: bool = False) -> RecordBatch:
    return RecordBatch(record_size=record_size, capacity=capacity, owner=OWNER, padding=PADDING, compressed=compressed)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("record_size", "capacity", "records"),
    [(1, 5, 5), (19, 3, 2), (20, 1, 1), (100, 64, 64), (100, 65, 65), (47, 10_000, 8193), (8190, 70, 69), (1024, 9, 9)],
)
def test_batches_are_what_they_say(record_size: int, capacity: int, records: int, compressed: bool) -> None:
    batch = batch_of(record_size, capacity, compressed=compressed)
    batch.made(records=capacity, first_sequence=7, now_ms=1)  # what was there before leaves nothing behind

    content = bytes(batch.made(records=records, first_sequence=2**33, now_ms=1_700_000_000_000))

    found = MemoryRecords(content).next_batch()
    assert found.validate_crc()
    read = list(found)
    assert [record.offset for record in read] == list(range(records))
    assert {len(record.value) for record in read} == {record_size}
    assert {(record.key, record.timestamp) for record in read} == {(None, 1_700_000_000_000)}
    assert batch.is_stamped == (record_size >= 20)
    if batch.is_stamped:
        stamps = [STAMP.unpack_from(record.value) for record in read]
        assert stamps == [(*OWNER, 2**33 + index) for index in range(records)]
        assert len(read[0].value) == 20 or read[0].value[20:] in PADDING * (record_size // len(PADDING) + 2)


@pytest.mark.parametrize("client_id", ["app", None])
def test_produce_requests_bring_their_batch_to_their_partition(client_id: str | None) -> None:
    request = ProduceFrames(ProduceRequest(topic="orders", acks=-1), client_id=client_id, batch=batch_of(100, 50))

    for partition, records in ((3, 50), (0, 1)):
        frame = request.frame(77, partition=partition, records=records, first_sequence=0, now_ms=5)
        read = TheirProduce[7].decode(frame, header=True, framed=True, version=7)
        assert (read.acks, read.topic_data[0].name) == (-1, "orders")
        found = read.topic_data[0].partition_data[0]
        assert found.index == partition
        assert len(list(MemoryRecords(bytes(found.records)).next_batch())) == records
    assert struct.unpack_from(">ihhi", frame) == (len(frame) - 4, 0, 7, 77)
    assert struct.unpack_from(">h", frame, 12)[0] == (-1 if client_id is None else len(client_id))


def test_fetches_ask_and_are_read() -> None:
    request = FetchRequest(topic="orders", offsets={2: 40, 4: 0}, max_wait_ms=9, min_bytes=2, max_bytes=5000)
    frame = request_frame(request, 11, correlation_id=5, client_id=None)

    read = TheirFetch[11].decode(frame, header=True, framed=True, version=11)
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.session_epoch) == (9, 2, 5000, -1)
    assert [(each.partition, each.fetch_offset) for each in read.topics[0].partitions] == [(2, 40), (4, 0)]

    topic_type = FetchResponse[11].FetchableTopicResponse
    batch = bytes(batch_of(100, 10).made(records=10, first_sequence=0, now_ms=1))
    part = topic_type.PartitionData(
        version=11, partition_index=2, error_code=0, high_watermark=90, last_stable_offset=90, log_start_offset=3,
        aborted_transactions=None, preferred_read_replica=-1, records=batch + batch[:70],
    )  # fmt: skip
    answer = FetchResponse[11](
        version=11, throttle_time_ms=123, error_code=0, session_id=0,
        responses=[topic_type(version=11, topic="orders", partitions=[part])],
    )  # fmt: skip
    answer.with_header(correlation_id=5)
    found = read_records_answer(request, bytes(answer.encode(header=True, framed=True)))
    assert found.throttle_ms == 123
    (only,) = found.partitions
    assert (only.partition, only.high_watermark, only.log_start_offset) == (2, 90, 3)
    assert (only.records, only.next_offset) == (10, 10)  # the second batch was cut off


@pytest.mark.parametrize("api", FLOOD_APIS)
def test_floods_are_of_known_requests_with_their_correlation_id(api: str) -> None:
    request = FloodFrame(RequestFlood(api=api), client_id=None, topic="t", end_offset=7, record_size=100)

    frame = request.numbered(123_456)

    assert struct.unpack_from(">ihhi", frame) == (len(frame) - 4, request.request.api_key, request.version, 123_456)


@pytest.mark.parametrize(
    ("flood", "topic"),
    [
        (RequestFlood(api="Fetch"), ""),
        (RequestFlood(api="Metadata", unauthorised=True), ""),
        (RequestFlood(api="Envelope"), "t"),
    ],
)
def test_floods_without_what_they_need_are_refused(flood: RequestFlood, topic: str) -> None:
    with pytest.raises(UsageError):
        check_flood(flood, topic=topic)


def test_topics_are_made_removed_and_grown() -> None:
    topics = (NewTopic("a", 3, 2), NewTopic("b", 4, 2))
    make = StrictCreateTopics(topics=topics, timeout_ms=9, validate_only=True)
    made = CreateTopicsRequest[6].decode(_frame(make), header=True, framed=True, version=6)
    assert [(each.name, each.num_partitions, each.replication_factor) for each in made.topics] == [
        ("a", 3, 2),
        ("b", 4, 2),
    ]
    assert (made.timeout_ms, made.validate_only) == (9, True)
    drop = StrictDeleteTopics(topics=topics, timeout_ms=9)
    assert DeleteTopicsRequest[5].decode(_frame(drop), header=True, framed=True, version=5).topic_names == ["a", "b"]
    grow = CreatePartitions(topics=topics, timeout_ms=9)
    grown = CreatePartitionsRequest[3].decode(_frame(grow), header=True, framed=True, version=3)
    assert [(each.name, each.count) for each in grown.topics] == [("a", 3), ("b", 4)]


def test_what_became_of_topics_is_read() -> None:
    config = CreateTopicsResponse[6].CreatableTopicResult.CreatableTopicConfigs
    created = [
        CreateTopicsResponse[6].CreatableTopicResult(
            version=6, name=name, error_code=code, error_message=text, num_partitions=1, replication_factor=1,
            configs=[config(version=6, name="k", value="v", read_only=False, config_source=5, is_sensitive=False)],
        )
        for name, code, text in (("a", 0, None), ("b", 89, "wait"))
    ]  # fmt: skip
    make = StrictCreateTopics(topics=(), timeout_ms=1)
    answer = _answered(make, CreateTopicsResponse[6](version=6, throttle_time_ms=500, topics=created))
    assert answer.throttle_ms == 500
    assert [tuple(each) for each in answer.topics] == [("a", 0, None), ("b", 89, "wait")]
    deleted = DeleteTopicsResponse[5].DeletableTopicResult(version=5, name="a", error_code=3, error_message=None)
    drop = StrictDeleteTopics(topics=(), timeout_ms=1)
    gone = _answered(drop, DeleteTopicsResponse[5](version=5, throttle_time_ms=0, responses=[deleted]))
    assert [tuple(each) for each in gone.topics] == [("a", 3, None)]
    result = CreatePartitionsResponse[3].CreatePartitionsTopicResult(
        version=3, name="a", error_code=37, error_message="no"
    )
    grow = CreatePartitions(topics=(), timeout_ms=1)
    more = _answered(grow, CreatePartitionsResponse[3](version=3, throttle_time_ms=0, results=[result]))
    assert [tuple(each) for each in more.topics] == [("a", 37, "no")]


def test_the_end_of_a_partition_is_asked_for() -> None:
    frame = request_frame(EndOffset(topic="t", partition=4), 2, correlation_id=1, client_id="me")

    read = ListOffsetsRequest[2].decode(frame, header=True, framed=True, version=2)
    (partition,) = read.topics[0].partitions
    assert (read.topics[0].name, partition.partition_index, partition.timestamp) == ("t", 4, -1)


def _frame(request: TopicMutation) -> bytes:
    return request_frame(request, request.versions.highest, correlation_id=1, client_id="me")


def _answered(request, response):  # type: ignore[no-untyped-def]
    response.with_header(correlation_id=1)
    content = bytes(response.encode(header=True, framed=True))[4:]
    return read_answer(request, request.versions.highest, content, correlation_id=1)
