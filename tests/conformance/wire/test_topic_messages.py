"""CreateTopics, CreatePartitions, DeleteTopics, Metadata and Produce, made by two independent implementations.

kafka-python has every version that Kafka 3.9 serves, kio those of Kafka 4 with all tagged fields. What they encoded is
read, cut and merged by our codecs; what comes out must be what they encode themselves for the expected message.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from kio.static.constants import EntityType
from kio.static.protocol import Entity
from tests.support.frames import kafka_python_samples, kio_samples
from tests.support.frames.topic_message_samples import (
    CORRELATION_ID,
    MESSAGE,
    MUTATIONS,
    encoded,
    header_of,
    kio_versions,
    python_request,
    python_versions,
    request_class,
)

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.enforcement.filters.topic_cache import BY_ID_VERSION, BY_NAME_VERSION
from kafka_quotas.enforcement.session.identity import BROKERS_VERSION
from kafka_quotas.wire.client.admin import MetadataRequest
from kafka_quotas.wire.client.request import request_frame
from kafka_quotas.wire.codec.encoding import CLASSIC, element_list, with_elements
from kafka_quotas.wire.proxying.produce import parse_produce
from kafka_quotas.wire.proxying.topics import (
    MutationRequest,
    all_refused,
    iter_topics,
    parse_metadata_request,
    parse_mutation,
    refused_topic,
    topic_results,
    with_refused,
    with_topics,
)

RESULTS = {ApiKey.CREATE_TOPICS: "topics", ApiKey.DELETE_TOPICS: "responses", ApiKey.CREATE_PARTITIONS: "results"}
NO_MESSAGE_BEFORE = {ApiKey.CREATE_TOPICS: 1, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 0}


def kept(frame: bytes, parsed: MutationRequest, indices: Sequence[int]) -> bytes:
    """The request with only the listed elements of these numbers."""
    spans = [parsed.listed.spans[index] for index in indices]
    return with_elements(parsed.form, frame, parsed.listed, [frame[start:end] for start, end in spans])


# Requests.


@pytest.mark.parametrize(("api_key", "version"), python_versions(*MUTATIONS))
def test_cutting_a_request_leaves_what_kafka_python_would_send(api_key: int, version: int):
    message = python_request(api_key, version)
    frame = encoded(message, client_id="app")
    parsed = parse_mutation(frame, header_of(frame))
    assert len(parsed.keys) == kafka_python_samples.ELEMENTS
    name = "topic_names" if api_key == ApiKey.DELETE_TOPICS and version < 6 else "topics"
    for indices in ((), (0,), (1, 2), (0, 2), (0, 1, 2)):
        expected = python_request(api_key, version)
        setattr(expected, name, [getattr(expected, name)[index] for index in indices])
        assert kept(frame, parsed, indices) == encoded(expected, client_id="app")


@pytest.mark.parametrize(("api_key", "version"), kio_versions(EntityType.request, *MUTATIONS))
def test_cutting_a_request_leaves_what_kio_would_send(api_key: int, version: int):
    message = kio_samples.filled_request(api_key, version)
    frame = kio_samples.request_frame(message, client_id="app")
    parsed = parse_mutation(frame, header_of(frame))
    name = "topic_names" if api_key == ApiKey.DELETE_TOPICS and version < 6 else "topics"
    topics = getattr(message, name)
    for indices in ((1,), (0, 2)):
        expected = dataclasses.replace(message, **{name: tuple(topics[index] for index in indices)})
        assert kept(frame, parsed, indices) == kio_samples.request_frame(expected, client_id="app")


@pytest.mark.parametrize("version", range(8))
def test_topics_to_be_made_are_counted(version: int):
    message = python_request(ApiKey.CREATE_TOPICS, version)
    plain = message.topics[1]
    plain.assignments, plain.num_partitions = [], -1
    message.validate_only = False
    frame = encoded(message, client_id="app")
    parsed = parse_mutation(frame, header_of(frame))
    names = [topic.name for topic in message.topics]
    assert list(parsed.keys) == names
    assert parsed.partitions == (3, -1, 3)
    assert not parsed.validate_only
    message.validate_only = True
    frame = encoded(message, client_id="app")
    assert parse_mutation(frame, header_of(frame)).validate_only == (version >= 1)


@pytest.mark.parametrize("version", range(4))
def test_topics_that_grow_are_counted(version: int):
    message = python_request(ApiKey.CREATE_PARTITIONS, version)
    message.topics[2].assignments = None
    frame = encoded(message, client_id="app")
    parsed = parse_mutation(frame, header_of(frame))
    assert parsed.keys == tuple(topic.name for topic in message.topics)
    assert parsed.partitions == tuple(topic.count for topic in message.topics)
    assert parsed.validate_only


def test_topics_to_be_deleted_are_named_by_name_or_by_id():
    message = python_request(ApiKey.DELETE_TOPICS, 6)
    message.topics[1].name = None
    frame = encoded(message, client_id="app")
    parsed = parse_mutation(frame, header_of(frame))
    assert parsed.keys == (message.topics[0].name, message.topics[1].topic_id.bytes, message.topics[2].name)


@pytest.mark.parametrize("version", range(14))
def test_a_metadata_request_tells_what_it_may_make(version: int):
    message = python_request(ApiKey.METADATA, version)
    frame = encoded(message, client_id="app")
    parsed = parse_metadata_request(frame, header_of(frame))
    assert parsed.names == tuple(topic.name for topic in message.topics)
    assert parsed.may_create
    assert (parsed.auto_creation_at is not None) == (version >= 4)
    if parsed.auto_creation_at is not None:
        expected = python_request(ApiKey.METADATA, version)
        expected.allow_auto_topic_creation = False
        changed = bytearray(frame)
        changed[parsed.auto_creation_at] = 0
        assert bytes(changed) == encoded(expected, client_id="app")
    message.topics = [] if version == 0 else None
    frame = encoded(message, client_id="app")
    assert parse_metadata_request(frame, header_of(frame)).names is None


def test_our_own_questions_are_those_that_kafka_python_would_ask():
    cls = request_class(ApiKey.METADATA)
    asked = question(MetadataRequest(topics=["a", "b"]), BY_NAME_VERSION)
    message = cls.decode(asked, header=True, framed=True, version=BY_NAME_VERSION)
    assert [topic.name for topic in message.topics] == ["a", "b"]
    assert message.allow_auto_topic_creation is False
    everything = question(MetadataRequest(topics=None), BY_NAME_VERSION)
    assert parse_metadata_request(everything, header_of(everything)).names is None
    by_id = question(MetadataRequest(topic_ids=[bytes(range(16))]), BY_ID_VERSION)
    message = cls.decode(by_id, header=True, framed=True, version=BY_ID_VERSION)
    assert [(topic.name, topic.topic_id.bytes) for topic in message.topics] == [(None, bytes(range(16)))]
    assert message.allow_auto_topic_creation is False
    no_topic = question(MetadataRequest(), BROKERS_VERSION)
    assert cls.decode(no_topic, header=True, framed=True, version=BROKERS_VERSION).topics == []


def question(request: MetadataRequest, version: int) -> bytes:
    return request_frame(request, version, correlation_id=CORRELATION_ID, client_id="app")


# Responses to mutations.


@pytest.mark.parametrize(("api_key", "version"), python_versions(*MUTATIONS))
def test_refused_topics_are_merged_in_the_order_of_the_request(api_key: int, version: int):
    message = kafka_python_samples.filled_response(api_key, version)
    results = getattr(message, RESULTS[api_key])
    first, second, third = (result.name for result in results)
    refusal = refused_topic(api_key, version, "refused", error_code=89, message=MESSAGE)
    frame = kafka_python_samples.response_frame(message)
    order = ["refused", third, first, "refused", "unanswered", second]
    merged = with_refused(api_key, version, frame, order, {"refused": refusal})
    told = topic_results(api_key, version, merged)
    assert [result.name for result in told] == ["refused", third, first, "refused", second]
    assert [result.error_code for result in told if result.name == "refused"] == [89, 89]
    decoded = kafka_python_samples.RESPONSES[api_key][version].decode(merged, header=True, framed=True)
    found = getattr(decoded, RESULTS[api_key])
    assert [found[index].to_dict() for index in (2, 4, 1)] == [result.to_dict() for result in results]
    has_message = version >= NO_MESSAGE_BEFORE[api_key]
    assert found[0].to_dict().get("error_message") == (MESSAGE if has_message else None)
    untouched = with_refused(api_key, version, frame, [first, second], {})
    assert untouched == frame, "what answers no topic of the request stays, at the end"


@pytest.mark.parametrize(("api_key", "version"), kio_versions(EntityType.response, *MUTATIONS))
def test_a_response_of_refused_topics_alone_is_one_that_kio_reads(api_key: int, version: int):
    refused = [refused_topic(api_key, version, name, error_code=89, message=MESSAGE) for name in ("a", "b")]
    frame = all_refused(api_key, version, CORRELATION_ID, refused)
    message: Any = kio_samples.decoded_response(frame, api_key, version)
    results = getattr(message, RESULTS[api_key])
    assert [(result.name, int(result.error_code)) for result in results] == [("a", 89), ("b", 89)]
    if version >= NO_MESSAGE_BEFORE[api_key]:
        assert {result.error_message for result in results} == {MESSAGE}
    assert message.throttle_time.total_seconds() == 0


@pytest.mark.parametrize(("api_key", "version"), kio_versions(EntityType.response, *MUTATIONS))
def test_results_of_the_broker_stay_what_kio_made_them(api_key: int, version: int):
    message: Any = kio_samples.filled_response(api_key, version)
    results = getattr(message, RESULTS[api_key])
    frame = kio_samples.response_frame(message)
    told = topic_results(api_key, version, frame)
    assert [(one.name, one.error_code) for one in told] == [(one.name, int(one.error_code)) for one in results]
    if api_key == ApiKey.CREATE_TOPICS and version >= 5:
        assert [one.partitions for one in told] == [one.num_partitions for one in results]
    refusal = refused_topic(api_key, version, "refused", error_code=89, message=MESSAGE)
    order = [results[1].name, "refused", results[0].name]
    merged = with_refused(api_key, version, frame, order, {"refused": refusal})
    decoded: Any = kio_samples.decoded_response(merged, api_key, version)
    found = getattr(decoded, RESULTS[api_key])
    assert (found[0], found[2], found[3]) == (results[1], results[0], results[2])
    assert decoded.throttle_time == message.throttle_time


def test_a_topic_refused_by_its_id_is_told_by_its_id():
    topic_id = bytes(range(16))
    refused = refused_topic(ApiKey.DELETE_TOPICS, 6, topic_id, error_code=89, message=MESSAGE)
    frame = all_refused(ApiKey.DELETE_TOPICS, 6, CORRELATION_ID, [refused])
    message: Any = kio_samples.decoded_response(frame, ApiKey.DELETE_TOPICS, 6)
    assert (message.responses[0].name, message.responses[0].topic_id.bytes) == (None, topic_id)
    assert topic_results(ApiKey.DELETE_TOPICS, 6, frame)[0].keys == (topic_id,)


UNKNOWN_TAG = bytes.fromhex("01 2a 03 aabbcc")


def test_unknown_tags_of_results_and_of_the_response_are_kept():
    refused = [refused_topic(ApiKey.CREATE_PARTITIONS, 3, name, error_code=0, message="") for name in ("a", "b")]
    tagged = refused[0][:-1] + UNKNOWN_TAG
    frame = all_refused(ApiKey.CREATE_PARTITIONS, 3, CORRELATION_ID, [tagged, refused[1]])
    content = frame[4:8] + UNKNOWN_TAG + frame[9:-1] + UNKNOWN_TAG
    frame = len(content).to_bytes(4, "big") + content
    refusal = refused_topic(ApiKey.CREATE_PARTITIONS, 3, "r", error_code=89, message=MESSAGE)
    merged = with_refused(ApiKey.CREATE_PARTITIONS, 3, frame, ["b", "r", "a"], {"r": refusal})
    assert merged.count(UNKNOWN_TAG) == 3
    assert [result.name for result in topic_results(ApiKey.CREATE_PARTITIONS, 3, merged)] == ["b", "r", "a"]


# Metadata responses.


@pytest.mark.parametrize("version", range(14))
def test_topics_of_a_metadata_response_are_told_as_kafka_python_has_them(version: int):
    message = kafka_python_samples.filled_response(ApiKey.METADATA, version)
    topics = message.topics
    topics[1].partitions = []
    topics[2].partitions[0].leader_id = -1
    frame = kafka_python_samples.response_frame(message)
    told = tuple(iter_topics(version, frame))
    assert [(one.name, one.error_code, one.partitions) for one in told] == [
        (topic.name, topic.error_code, len(topic.partitions)) for topic in topics
    ]
    assert [one.leaders for one in told] == [
        {partition.leader_id for partition in topic.partitions} - {-1} for topic in topics
    ]
    if version >= 10:
        assert [one.topic_id for one in told] == [topic.topic_id.bytes for topic in topics]
    merged = with_topics(version, frame, [topics[2].name, "absent", topics[0].name], {"absent": 3})
    decoded = kafka_python_samples.RESPONSES[ApiKey.METADATA][version].decode(merged, header=True, framed=True)
    assert [topic.to_dict() for topic in decoded.topics[::2]] == [topics[2].to_dict(), topics[0].to_dict()]
    absent = decoded.topics[1]
    assert (absent.name, absent.error_code, absent.partitions) == ("absent", 3, [])


@pytest.mark.parametrize(("api_key", "version"), kio_versions(EntityType.response, ApiKey.METADATA))
def test_a_metadata_response_of_kio_keeps_everything_else(api_key: int, version: int):
    message: Any = kio_samples.filled_response(api_key, version)
    names = [topic.name for topic in message.topics]
    frame = kio_samples.response_frame(message)
    decoded: Any = kio_samples.decoded_response(with_topics(version, frame, names[1:], {}), api_key, version)
    assert decoded == dataclasses.replace(message, topics=message.topics[1:])


# Produce.


@pytest.mark.parametrize(
    ("api_key", "version"), kio_versions(EntityType.request, *MUTATIONS, ApiKey.METADATA, ApiKey.PRODUCE)
)
def test_requests_that_end_early_are_refused_with_an_error_of_ours(api_key: int, version: int):
    message: Entity = kio_samples.filled_request(api_key, version)
    frame = kio_samples.request_frame(message, client_id="app")
    parse = {ApiKey.METADATA: parse_metadata_request, ApiKey.PRODUCE: parse_produce}.get(api_key, parse_mutation)
    listed = parse(frame, header_of(frame)).listed
    for length in range(header_of(frame).end, listed.end, 7):
        content = frame[4:length]
        shorter = len(content).to_bytes(4, "big") + content
        with pytest.raises(ProtocolError):
            parse(shorter, header_of(shorter))


def test_a_list_of_nothing_is_not_walked_for_ever():
    with pytest.raises(ProtocolError):
        element_list(CLASSIC, (), (2**31 - 1).to_bytes(4, "big"), 0, 4)
