"""A client's requests about a cluster: its brokers, the leaders, end offsets and moves of partitions.

The parts of a response are tuples, because a cluster with a million partitions needs a million of them.

**Source:** `MetadataRequest.json`, `ListOffsetsRequest.json`, `ListPartitionReassignmentsRequest.json` and their
responses, Kafka 4.1; KIP-79, KIP-455.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.encoding import NO_TOPIC_ID, TopicId
from kafka_quotas.wire.codec.fields import FieldReader, FieldWriter

_AUTO_CREATION_SINCE: Final = 4
_OFFLINE_REPLICAS_SINCE: Final = 5
_PARTITION_EPOCH_SINCE: Final = 7
_AUTHORIZED_OPERATIONS_SINCE: Final = 8
_TOPIC_ID_SINCE: Final = 10
_CLUSTER_OPERATIONS_UNTIL: Final = 10


class Broker(NamedTuple):
    """A live broker and its advertised address."""

    node_id: int
    host: str
    port: int


class Partition(NamedTuple):
    """A partition and its leader."""

    number: int
    leader_id: int
    """The node id of the leader; -1 for none."""


class Topic(NamedTuple):
    """A topic with its partitions, or an error."""

    name: str
    error_code: int
    partitions: tuple[Partition, ...]


class Metadata(NamedTuple):
    """A cluster as one of its brokers knows it."""

    brokers: tuple[Broker, ...]
    controller_id: int
    """The node id of the controller; -1 if unknown."""
    topics: tuple[Topic, ...]
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(ClientRequest[Metadata]):
    """A request for the brokers and some topics, without creating any.

    The versions are those whose responses are read here. Others can be written.
    """

    topics: Sequence[str] | None = ()
    """The names of topics; None: all."""
    topic_ids: Sequence[TopicId] = ()
    """The ids of topics, in versions from 12 on."""

    api_key: ClassVar[ApiKey] = ApiKey.METADATA
    versions: ClassVar[VersionRange] = VersionRange(4, 9)
    broker_since: ClassVar[str] = "1.0"

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.count(None if self.topics is None else len(self.topics) + len(self.topic_ids))
        for name in self.topics or ():
            if version >= _TOPIC_ID_SINCE:
                writer.raw(NO_TOPIC_ID)
            writer.string(name)
            writer.tags()
        for topic_id in self.topic_ids:
            writer.raw(topic_id)
            writer.string(None)
            writer.tags()
        # Without this flag a broker may create every topic that the request names (KIP-4).
        if version >= _AUTO_CREATION_SINCE:
            writer.boolean(value=False)
        if _AUTHORIZED_OPERATIONS_SINCE <= version <= _CLUSTER_OPERATIONS_UNTIL:
            writer.boolean(value=False)
        if version >= _AUTHORIZED_OPERATIONS_SINCE:
            writer.boolean(value=False)
        writer.tags()

    def read(self, reader: FieldReader, version: int) -> Metadata:
        reader.int32()  # throttle_time_ms
        brokers = tuple(_broker(reader) for _ in range(reader.count()))
        cluster_id = reader.string()
        controller_id = reader.int32()
        topics = tuple(_topic(reader, version) for _ in range(reader.count()))
        if version >= _AUTHORIZED_OPERATIONS_SINCE:
            reader.int32()
        reader.tags()
        return Metadata(brokers=brokers, controller_id=controller_id, topics=topics, cluster_id=cluster_id)


def _broker(reader: FieldReader) -> Broker:
    broker = Broker(node_id=reader.int32(), host=reader.text(), port=reader.int32())
    reader.string()  # rack
    reader.tags()
    return broker


def _topic(reader: FieldReader, version: int) -> Topic:
    error_code, name = reader.int16(), reader.text()
    reader.boolean()  # is_internal
    partitions = tuple(_partition(reader, version) for _ in range(reader.count()))
    if version >= _AUTHORIZED_OPERATIONS_SINCE:
        reader.int32()
    reader.tags()
    return Topic(name=name, error_code=error_code, partitions=partitions)


def _partition(reader: FieldReader, version: int) -> Partition:
    reader.int16()  # error_code
    partition = Partition(number=reader.int32(), leader_id=reader.int32())
    if version >= _PARTITION_EPOCH_SINCE:
        reader.int32()
    reader.skip_int32s()  # replicas
    reader.skip_int32s()  # in-sync replicas
    if version >= _OFFLINE_REPLICAS_SINCE:
        reader.skip_int32s()
    reader.tags()
    return partition


_INT64: Final = Struct(">q")
_NO_REPLICA: Final = -1
_LATEST: Final = -1
_NO_EPOCH: Final = -1
_LEADER_EPOCH_SINCE: Final = 4


class FoundOffset(NamedTuple):
    """The offset after the last record, or an error."""

    error_code: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffset(ClientRequest[FoundOffset]):
    """A request to the leader of a partition for its end offset."""

    topic: str
    partition: int

    api_key: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS
    versions: ClassVar[VersionRange] = VersionRange(2, 2)
    broker_since: ClassVar[str] = "0.11"

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.int32(_NO_REPLICA)
        writer.int8(0)  # isolation level: uncommitted
        writer.count(1)
        writer.string(self.topic)
        writer.count(1)
        writer.int32(self.partition)
        if version >= _LEADER_EPOCH_SINCE:
            writer.int32(_NO_EPOCH)
        writer.raw(_INT64.pack(_LATEST))

    def read(self, reader: FieldReader, version: int) -> FoundOffset:
        reader.int32()  # throttle_time_ms
        reader.count()
        reader.text()
        reader.count()
        reader.int32()
        error_code = reader.int16()
        reader.int64()  # timestamp
        return FoundOffset(error_code, reader.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignments:
    """The topics with partitions that are being moved, or an error."""

    error_code: int
    error_message: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReassignmentsRequest(ClientRequest[Reassignments]):
    """A request for all partitions that are being moved."""

    timeout_ms: int

    api_key: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS
    versions: ClassVar[VersionRange] = VersionRange(0, 0)
    broker_since: ClassVar[str] = "2.4"

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.int32(self.timeout_ms)
        writer.count(None)  # all topics
        writer.tags()

    def read(self, reader: FieldReader, version: int) -> Reassignments:
        reader.int32()  # throttle_time_ms
        error_code, error_message = reader.int16(), reader.string()
        topics = tuple(_moving_topic(reader) for _ in range(reader.count()))
        reader.tags()
        return Reassignments(error_code=error_code, error_message=error_message, topics=topics)


def _moving_topic(reader: FieldReader) -> str:
    name = reader.text()
    for _ in range(reader.count()):
        reader.int32()  # partition
        reader.skip_int32s()  # replicas
        reader.skip_int32s()  # being added
        reader.skip_int32s()  # being removed
        reader.tags()
    reader.tags()
    return name
