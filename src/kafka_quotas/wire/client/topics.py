"""A client's requests to create, delete and grow topics, with and without errors of a mutation quota.

`TopicMutation` and its subclasses use the versions that brokers refuse by a mutation quota: strictly, with error 89.
Brokers from Kafka 2.7 to 4.x support these. `CreateTopics` and `DeleteTopics` use versions that every broker from Kafka
2.4 to 4.x supports. They have no error for a mutation quota: a broker accepts them and answers late instead.

**Source:** KIP-599; `CreateTopicsRequest.json`, `DeleteTopicsRequest.json`, `CreatePartitionsRequest.json`, Kafka 4.1.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter
from kafka_quotas.wire.protocol.api import NEVER


class WantedTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    """The replication factor; -1 for the broker's default."""


class TopicOutcome(NamedTuple):
    """The result of one topic."""

    name: str
    error_code: int
    """The error code; 0 for success."""
    error_message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(ClientRequest[tuple[TopicOutcome, ...]]):
    """A request to create topics."""

    topics: Sequence[WantedTopic]
    timeout_ms: int
    """The time that the broker may take."""

    name: ClassVar[str] = "CreateTopics"
    api_key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS
    versions: ClassVar[VersionRange] = VersionRange(4, 4)
    flexible_since: ClassVar[int] = NEVER
    broker_since: ClassVar[str] = "2.4"

    def write(self, writer: FieldWriter, version: int) -> None:
        """Append the body of the request."""
        del version
        writer.count(len(self.topics))
        for topic in self.topics:
            writer.string(topic.name)
            writer.int32(topic.partitions)
            writer.int16(topic.replication_factor)
            writer.count(0)  # assignments
            writer.count(0)  # configs
        writer.int32(self.timeout_ms)
        writer.boolean(value=False)  # validate only

    def read(self, reader: FieldReader, version: int) -> tuple[TopicOutcome, ...]:
        """Return the result of each topic."""
        del version
        reader.int32()  # throttle_time_ms
        return tuple(TopicOutcome(reader.text(), reader.int16(), reader.string()) for _ in range(reader.count()))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(ClientRequest[tuple[TopicOutcome, ...]]):
    """A request to delete topics by name."""

    topics: Sequence[str]
    timeout_ms: int
    """The time that the broker may take."""

    name: ClassVar[str] = "DeleteTopics"
    api_key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS
    versions: ClassVar[VersionRange] = VersionRange(3, 3)
    flexible_since: ClassVar[int] = NEVER
    broker_since: ClassVar[str] = "2.4"

    def write(self, writer: FieldWriter, version: int) -> None:
        """Append the body of the request."""
        del version
        writer.count(len(self.topics))
        for topic in self.topics:
            writer.string(topic)
        writer.int32(self.timeout_ms)

    def read(self, reader: FieldReader, version: int) -> tuple[TopicOutcome, ...]:
        """Return the result of each topic."""
        del version
        reader.int32()  # throttle_time_ms
        return tuple(TopicOutcome(reader.text(), reader.int16(), None) for _ in range(reader.count()))


class MutatedTopic(NamedTuple):
    """A topic to create, delete or grow."""

    name: str
    partitions: int
    """The partition count after the change; 0 to delete."""


class MutationAnswer(NamedTuple):
    """The throttle time in ms, and the result of each topic."""

    throttle_ms: int
    outcomes: tuple[TopicOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMutation(ClientRequest[MutationAnswer]):
    """A change of some topics."""

    topics: Sequence[MutatedTopic]
    timeout_ms: int
    """The time that the broker may take."""
    replication_factor: int = -1
    """The replication factor of new topics; -1 for the broker's default."""
    validate_only: bool = False
    """Whether the broker only validates the change."""

    broker_since: ClassVar[str] = "2.7"

    @abstractmethod
    def write_topic(self, writer: FieldWriter, topic: MutatedTopic) -> None:
        """Append one topic."""

    def write(self, writer: FieldWriter, version: int) -> None:
        """Append the body of the request."""
        del version
        writer.count(len(self.topics))
        for topic in self.topics:
            self.write_topic(writer, topic)
        writer.int32(self.timeout_ms)
        self.write_end(writer)
        writer.tags()

    def write_end(self, writer: FieldWriter) -> None:
        """Append the fields after the timeout."""
        writer.boolean(value=self.validate_only)

    def read(self, reader: FieldReader, version: int) -> MutationAnswer:
        """Return the throttle time and the result of each topic."""
        del version
        throttle_ms = reader.int32()
        return MutationAnswer(throttle_ms, tuple(self.read_outcome(reader) for _ in range(reader.count())))

    def read_outcome(self, reader: FieldReader) -> TopicOutcome:
        """Return the result of one topic."""
        outcome = TopicOutcome(reader.text(), reader.int16(), reader.string())
        reader.tags()
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTopics(TopicMutation):
    """A request to create topics."""

    name: ClassVar[str] = "CreateTopics"
    api_key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS
    versions: ClassVar[VersionRange] = VersionRange(6, 6)
    flexible_since: ClassVar[int] = 5

    def write_topic(self, writer: FieldWriter, topic: MutatedTopic) -> None:
        """Append one topic."""
        writer.string(topic.name)
        writer.int32(topic.partitions)
        writer.int16(self.replication_factor)
        writer.count(0)  # assignments
        writer.count(0)  # configs
        writer.tags()

    def read_outcome(self, reader: FieldReader) -> TopicOutcome:
        """Return the result of one topic."""
        outcome = TopicOutcome(reader.text(), reader.int16(), reader.string())
        reader.int32()  # partitions
        reader.int16()  # replication factor
        for _ in range(reader.count()):  # configs: name, value, read-only, source, sensitive
            reader.string()
            reader.string()
            reader.skip(3)
            reader.tags()
        reader.tags()
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTopics(TopicMutation):
    """A request to delete topics, whose API has no `validate_only`."""

    name: ClassVar[str] = "DeleteTopics"
    api_key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS
    versions: ClassVar[VersionRange] = VersionRange(5, 5)
    flexible_since: ClassVar[int] = 4

    def write_topic(self, writer: FieldWriter, topic: MutatedTopic) -> None:
        """Append one topic, which is no structure in this version."""
        writer.string(topic.name)

    def write_end(self, writer: FieldWriter) -> None:
        """Append nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(TopicMutation):
    """A request to give topics more partitions."""

    name: ClassVar[str] = "CreatePartitions"
    api_key: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS
    versions: ClassVar[VersionRange] = VersionRange(3, 3)
    flexible_since: ClassVar[int] = 2

    def write_topic(self, writer: FieldWriter, topic: MutatedTopic) -> None:
        """Append one topic."""
        writer.string(topic.name)
        writer.int32(topic.partitions)
        writer.count(None)  # assignments: the broker's choice
        writer.tags()
