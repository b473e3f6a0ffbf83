"""Produce requests cut by partition and their results merged, made by two independent implementations."""

import dataclasses
from typing import Any

import pytest
from kio.static.constants import EntityType
from tests.support.frames import kafka_python_samples, kio_samples
from tests.support.frames.topic_message_samples import (
    CORRELATION_ID,
    MESSAGE,
    encoded,
    header_of,
    kio_versions,
    python_request,
)

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.proxying.produce import (
    Sequenced,
    all_refused_partitions,
    parse_produce,
    partition_results,
    refused_partition,
    with_refused_partitions,
    without_partitions,
)


def batch(size: int, *, producer_id: int = -1, epoch: int = -1, sequence: int = -1, magic: int = 2) -> bytes:
    """Bytes that are a record batch as far as its header, `size` in all."""
    head = bytes(8) + (size - 12).to_bytes(4, "big") + bytes(4) + bytes((magic,)) + bytes(26)
    numbers = producer_id.to_bytes(8, "big", signed=True) + epoch.to_bytes(2, "big", signed=True)
    return (head + numbers + sequence.to_bytes(4, "big", signed=True)).ljust(size, b"r")


def produce_message(version: int) -> Any:
    """A Produce with three topics of three partitions, numbered 0 to 2, with records of as many bytes as told."""
    message = python_request(ApiKey.PRODUCE, version)
    for topic in message.topic_data:
        for number, partition in enumerate(topic.partition_data):
            partition.index = number
            partition.records = batch(100 + number, producer_id=900 + number, epoch=4, sequence=50)
    return message


def topics_of(message: Any, version: int) -> list[Any]:
    return [topic.topic_id.bytes if version >= 13 else topic.name for topic in message.topic_data]


@pytest.mark.parametrize("version", range(14))
def test_cutting_partitions_leaves_what_kafka_python_would_send(version: int):
    message = produce_message(version)
    frame = encoded(message, client_id="app")
    data = parse_produce(frame, header_of(frame))
    first, second, third = topics_of(message, version)
    assert data.order == [(topic, number) for topic in (first, second, third) for number in range(3)]
    assert [part.size for part in data.topics[0].partitions] == [100, 101, 102]
    assert data.topics[0].partitions[1].sequenced == Sequenced(901, 4, 50)
    cut = {(first, 1), (second, 0), (second, 1), (second, 2)}
    message.topic_data[0].partition_data.pop(1)
    message.topic_data.pop(1)
    assert without_partitions(frame, header_of(frame), data, cut.__contains__) == encoded(message, client_id="app")
    assert without_partitions(frame, header_of(frame), data, lambda _: True) is None


@pytest.mark.parametrize(("api_key", "version"), kio_versions(EntityType.request, ApiKey.PRODUCE))
def test_cutting_partitions_leaves_what_kio_would_send(api_key: int, version: int):
    message: Any = kio_samples.filled_request(api_key, version)
    frame = kio_samples.request_frame(message, client_id="app")
    data = parse_produce(frame, header_of(frame))
    topic, *others = message.topic_data
    gone = (data.topics[0].topic, topic.partition_data[2].index)
    expected = dataclasses.replace(
        message, topic_data=(dataclasses.replace(topic, partition_data=topic.partition_data[:2]), *others)
    )
    cut = without_partitions(frame, header_of(frame), data, lambda key: key == gone)
    assert cut == kio_samples.request_frame(expected, client_id="app")


@pytest.mark.parametrize("records", [batch(80), batch(80, producer_id=5, magic=1), b"", b"short"])
def test_records_that_nobody_numbered_are_not_sequenced(records: bytes):
    message = produce_message(7)
    message.topic_data[0].partition_data[0].records = records
    frame = encoded(message, client_id="app")
    partition = parse_produce(frame, header_of(frame)).topics[0].partitions[0]
    assert (partition.sequenced, partition.size) == (None, len(records))


def produce_response(version: int) -> Any:
    """A response for three topics of three partitions numbered 0 to 2."""
    message = kafka_python_samples.filled_response(ApiKey.PRODUCE, version)
    for topic in message.responses:
        for number, partition in enumerate(topic.partition_responses):
            partition.index = number
    return message


@pytest.mark.parametrize("version", range(14))
def test_refused_partitions_are_merged_in_the_order_of_the_request(version: int):
    message = produce_response(version)
    frame = kafka_python_samples.response_frame(message)
    first, second, third = (topic.topic_id.bytes if version >= 13 else topic.name for topic in message.responses)
    other: Any = bytes(range(16)) if version >= 13 else "other"
    refusal = refused_partition(version, 7, error_code=44, message=MESSAGE)
    order = [(other, 7), *[(third, number) for number in (2, 7, 0, 1)]]
    order += [(topic, number) for topic in (second, first) for number in range(3)]
    merged = with_refused_partitions(version, frame, order, {(other, 7): refusal, (third, 7): refusal})
    results = list(partition_results(version, merged))
    assert [(result.topic, result.partition) for result in results] == order
    assert [result.error_code for result in results if result.partition == 7] == [44, 44]
    decoded = kafka_python_samples.RESPONSES[ApiKey.PRODUCE][version].decode(merged, header=True, framed=True)
    assert [topic.to_dict() for topic in decoded.responses[2:]] == [
        message.responses[1].to_dict(),
        message.responses[0].to_dict(),
    ]
    refused = decoded.responses[0].partition_responses[0].to_dict()
    assert (refused["index"], refused["error_code"], refused["base_offset"]) == (7, 44, -1)
    assert refused.get("error_message") == (MESSAGE if version >= 8 else None)
    assert decoded.to_dict().get("throttle_time_ms") == message.to_dict().get("throttle_time_ms")


@pytest.mark.parametrize(("api_key", "version"), kio_versions(EntityType.response, ApiKey.PRODUCE))
def test_a_produce_response_of_kio_keeps_leaders_and_endpoints(api_key: int, version: int):
    message: Any = kio_samples.filled_response(api_key, version)
    frame = kio_samples.response_frame(message)
    topics = [topic.topic_id.bytes if version >= 13 else topic.name for topic in message.responses]
    order = [
        (topic, partition.index)
        for topic, told in zip(topics, message.responses, strict=True)
        for partition in told.partition_responses
    ]
    assert with_refused_partitions(version, frame, order, {}) == frame
    refusal = refused_partition(version, 7, error_code=44, message=MESSAGE)
    merged = with_refused_partitions(version, frame, [*order, (topics[2], 7)], {(topics[2], 7): refusal})
    decoded: Any = kio_samples.decoded_response(merged, api_key, version)
    last = decoded.responses[2]
    without_ours = dataclasses.replace(last, partition_responses=last.partition_responses[:-1])
    assert dataclasses.replace(decoded, responses=(*decoded.responses[:2], without_ours)) == message


@pytest.mark.parametrize("version", range(3, 14))
def test_a_response_of_refused_partitions_alone_is_one_that_kio_reads(version: int):
    topic: Any = bytes(range(16)) if version >= 13 else "refused"
    refused = {(topic, n): refused_partition(version, n, error_code=44, message=MESSAGE) for n in range(3)}
    frame = all_refused_partitions(version, CORRELATION_ID, list(refused), refused)
    message: Any = kio_samples.decoded_response(frame, ApiKey.PRODUCE, version)
    partitions = message.responses[0].partition_responses
    assert [(one.index, int(one.error_code)) for one in partitions] == [(0, 44), (1, 44), (2, 44)]
    assert message.throttle_time.total_seconds() == 0


# Rubbish.
