"""A broker of topics in memory, in kafka-python's messages: what sessions under test have on their other side."""

import itertools
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol import admin, metadata, producer
from tests.support.frames.enforcement import CLIENT_ID, Pair

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.api_table import ErrorCode

PRODUCE, METADATA = ApiKey.PRODUCE, ApiKey.METADATA
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS
_REQUESTS = {
    PRODUCE: producer.ProduceRequest,
    METADATA: metadata.MetadataRequest,
    CREATE_TOPICS: admin.CreateTopicsRequest,
    DELETE_TOPICS: admin.DeleteTopicsRequest,
    CREATE_PARTITIONS: admin.CreatePartitionsRequest,
}
_RESPONSES = {
    PRODUCE: producer.ProduceResponse,
    METADATA: metadata.MetadataResponse,
    CREATE_TOPICS: admin.CreateTopicsResponse,
    DELETE_TOPICS: admin.DeleteTopicsResponse,
    CREATE_PARTITIONS: admin.CreatePartitionsResponse,
}
_NO_ERROR, _UNKNOWN_TOPIC = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_EXISTS, _UNKNOWN_ID = ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_ID


def topic_id(name: str) -> uuid.UUID:
    """The id that every broker here gives a topic."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def frame_of(message: Any, correlation_id: int, *, client_id: str | None = CLIENT_ID) -> bytes:
    """The frame of a request of kafka-python's, or of a response where `client_id` is None."""
    message.with_header(correlation_id=correlation_id, **({} if client_id is None else {"client_id": client_id}))
    return bytes(message.encode(header=True, framed=True))


def request_of(api_key: int, version: int, **fields: Any) -> Any:
    """A request of kafka-python's."""
    return _REQUESTS[api_key][version](version=version, **fields)


def response_in(frame: bytes, api_key: int, version: int) -> Any:
    """The response of kafka-python's in a frame.

    Fails unless it takes up exactly the frame.
    """
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4, frame
    return _RESPONSES[api_key][version].decode(frame, header=True, framed=True)


def frames_in(data: bytes) -> Iterator[bytes]:
    """The frames, one behind the other."""
    while data:
        length = 4 + int.from_bytes(data[:4], "big")
        assert length <= len(data), "half a frame"
        yield data[:length]
        data = data[length:]


@dataclass
class TopicBroker:
    """Topics by name with their number of partitions.

    `asked` has (API key, version) of every request it got.
    """

    topics: dict[str, int] = field(default_factory=dict)
    default_partitions: int = 3
    auto_creates: bool = True
    refuses: dict[str, int] = field(default_factory=dict)
    """Names to the error codes that their results get."""
    throttle_ms: int = 0
    leader: int = 1
    brokers: list[tuple[int, str, int]] = field(default_factory=list)
    """Node id, host and port of those that metadata tell of."""
    asked: list[tuple[int, int]] = field(default_factory=list)
    taken: list[tuple[str, int, bytes]] = field(default_factory=list)
    """Topic, partition and records of what was produced."""

    def answers(self, data: bytes) -> bytes:
        """The responses to some requests, in order."""
        return b"".join(self._answer(frame) for frame in frames_in(data))

    def _answer(self, frame: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        self.asked.append((key, version))
        request = _REQUESTS[key].decode(frame, header=True, framed=True, version=version)
        fields = {
            PRODUCE: self._produce,
            METADATA: self._metadata,
            CREATE_TOPICS: self._create,
            DELETE_TOPICS: self._delete,
            CREATE_PARTITIONS: self._grow,
        }[key](request, version)
        if key == PRODUCE and request.acks == 0:
            return b""
        response = _RESPONSES[key][version](version=version, throttle_time_ms=self.throttle_ms, **fields)
        return frame_of(response, correlation_id, client_id=None)

    def _metadata(self, request: Any, version: int) -> dict[str, Any]:
        named = request.topics
        if named is None or (version == 0 and not named):
            found = [self._told(version, name) for name in self.topics]
        else:
            found = [self._told(version, self._name(topic, version), topic) for topic in named]
            if version < 4 or request.allow_auto_topic_creation:
                self._auto_create(found)
        broker_type = _RESPONSES[METADATA][version].MetadataResponseBroker
        brokers = [
            broker_type(version=version, node_id=node, host=host, port=port, rack=None)
            for node, host, port in self.brokers
        ]
        return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": found}

    def _auto_create(self, found: list[Any]) -> None:
        for topic in found:
            if self.auto_creates and topic.error_code == _UNKNOWN_TOPIC:
                self.topics[topic.name] = self.default_partitions

    def _name(self, topic: Any, version: int) -> str | None:
        if getattr(topic, "name", None) or version < 10:
            name: str = topic.name
            return name
        return next((name for name in self.topics if topic_id(name) == topic.topic_id), None)

    def _told(self, version: int, name: str | None, asked: Any = None) -> Any:
        topic_type = _RESPONSES[METADATA][version].MetadataResponseTopic
        partition_type = topic_type.MetadataResponsePartition
        count = self.topics.get(name or "", 0)
        error = self.refuses.get(name or "", _NO_ERROR if count else _UNKNOWN_TOPIC if name else _UNKNOWN_ID)
        partitions = [
            partition_type(
                version=version, error_code=0, partition_index=index, leader_id=self.leader, leader_epoch=0,
                replica_nodes=[self.leader], isr_nodes=[self.leader], offline_replicas=[],
            )
            for index in range(count)
        ]  # fmt: skip
        identity = topic_id(name) if name and count else asked.topic_id if version >= 10 and asked else uuid.UUID(int=0)
        return topic_type(
            version=version, error_code=error, name=name, topic_id=identity, is_internal=False, partitions=partitions
        )

    def _create(self, request: Any, version: int) -> dict[str, Any]:
        result_type = _RESPONSES[CREATE_TOPICS][version].CreatableTopicResult
        results = []
        for topic in request.topics:
            count = len(topic.assignments) or topic.num_partitions
            count = self.default_partitions if count == -1 else count
            error = self.refuses.get(topic.name, _EXISTS if topic.name in self.topics else _NO_ERROR)
            if error == _NO_ERROR and not request.validate_only:
                self.topics[topic.name] = count
            results.append(
                result_type(
                    version=version, name=topic.name, topic_id=topic_id(topic.name), error_code=error,
                    error_message=None, num_partitions=count, replication_factor=1, configs=[],
                )
            )  # fmt: skip
        return {"topics": results}

    def _delete(self, request: Any, version: int) -> dict[str, Any]:
        result_type = _RESPONSES[DELETE_TOPICS][version].DeletableTopicResult
        named = [(self._name(topic, 10), topic.topic_id) for topic in request.topics] if version >= 6 else []
        results = []
        for name, asked_id in named or [(name, None) for name in request.topic_names]:
            missing = _UNKNOWN_TOPIC if name else _UNKNOWN_ID
            error = self.refuses.get(name, _NO_ERROR if name and self.topics.pop(name, 0) else missing)
            identity = topic_id(name) if name else asked_id
            fields = {"name": name, "topic_id": identity, "error_code": error, "error_message": None}
            results.append(result_type(version=version, **fields))
        return {"responses": results}

    def _grow(self, request: Any, version: int) -> dict[str, Any]:
        result_type = _RESPONSES[CREATE_PARTITIONS][version].CreatePartitionsTopicResult
        results = []
        for topic in request.topics:
            error = self.refuses.get(topic.name, _NO_ERROR if topic.name in self.topics else _UNKNOWN_TOPIC)
            if error == _NO_ERROR and not request.validate_only:
                self.topics[topic.name] = topic.count
            results.append(result_type(version=version, name=topic.name, error_code=error, error_message=None))
        return {"results": results}

    def _produce(self, request: Any, version: int) -> dict[str, Any]:
        topic_type = _RESPONSES[PRODUCE][version].TopicProduceResponse
        partition_type = topic_type.PartitionProduceResponse
        responses = []
        for topic in request.topic_data:
            name = topic.name if version < 13 else self._name(topic, 13)
            partitions = []
            for partition in topic.partition_data:
                error = self.refuses.get(name or "", _NO_ERROR)
                if error == _NO_ERROR:
                    self.taken.append((name or "", partition.index, bytes(partition.records or b"")))
                partitions.append(
                    partition_type(
                        version=version, index=partition.index, error_code=error, base_offset=0,
                        log_append_time_ms=-1, log_start_offset=0, record_errors=[], error_message=None,
                    )
                )  # fmt: skip
            identity = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
            responses.append(topic_type(version=version, partition_responses=partitions, **identity))
        return {"responses": responses}


class Client:
    """A client that talks to a `TopicBroker` through a session."""

    def __init__(self, pair: Pair, broker: TopicBroker) -> None:
        self.pair = pair
        self.broker = broker
        self._numbers = itertools.count(1)

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """The response to a request, after everything that the session and the broker said to each other."""
        before = len(self.pair.client)
        pending = self.pair.send(frame_of(request_of(api_key, version, **fields), next(self._numbers)))
        while pending:
            seen = len(self.pair.upstream)
            self.pair.answer(self.broker.answers(pending))
            pending = self.pair.upstream[seen:]
        answered = list(frames_in(self.pair.client[before:]))
        return response_in(answered[-1], api_key, version) if answered else None

    def produce(
        self, version: int, *data: tuple[str, int, bytes], acks: int = 1, transactional_id: str | None = None
    ) -> list[tuple[str, int, int]] | None:
        """Topic, partition and error code of each result of a request with this data, None without a response."""
        kind = request_of(PRODUCE, version).TopicProduceData
        topics: dict[str, list[Any]] = {}
        for topic, partition, records in data:
            part = kind.PartitionProduceData(version=version, index=partition, records=records)
            topics.setdefault(topic, []).append(part)
        wanted = [
            kind(
                version=version,
                partition_data=partitions,
                **({"topic_id": topic_id(topic)} if version >= 13 else {"name": topic}),
            )
            for topic, partitions in topics.items()
        ]
        fields: dict[str, Any] = {"transactional_id": transactional_id} if version >= 3 else {}
        response = self.ask(PRODUCE, version, acks=acks, timeout_ms=1000, topic_data=wanted, **fields)
        if response is None:
            return None
        names = {topic_id(name): name for name in topics}
        return [
            (names[topic.topic_id] if version >= 13 else topic.name, partition.index, partition.error_code)
            for topic in response.responses
            for partition in topic.partition_responses
        ]
