"""Changes of topics in the versions that brokers refuse by a mutation quota: strictly, with error 89.

Older versions are accepted always and answered late instead, see `topic_changes`. Brokers from Kafka 2.7 to 4.x take
these.

**Source:** KIP-599; `CreateTopicsRequest.json`, `DeleteTopicsRequest.json`, `CreatePartitionsRequest.json`, Kafka 4.1.

Making and removing many topics at once, as versions that every broker from Kafka 2.4 to 4.x takes.

These versions know no error for a mutation quota: a broker answers late instead.

**Source:** `CreateTopicsRequest.json`, `DeleteTopicsRequest.json`, Kafka 4.1; KIP-599.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter
from kafka_quotas.wire.protocol.api import NEVER


class WantedTopic(NamedTuple):
    """A topic to be made; a replication factor of -1 is the broker's default."""

    name: str
    partitions: int
    replication_factor: int


class TopicOutcome(NamedTuple):
    """What became of one topic; an error code of 0 is success."""

    name: str
    error_code: int
    error_message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(ClientRequest[tuple[TopicOutcome, ...]]):
    """Makes topics; `timeout_ms` is how long the broker may take."""

    topics: Sequence[WantedTopic]
    timeout_ms: int

    name: ClassVar[str] = "CreateTopics"
    api_key: ClassVar[int] = 19
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
        """Return what became of each topic."""
        del version
        reader.int32()  # throttle_time_ms
        return tuple(TopicOutcome(reader.text(), reader.int16(), reader.string()) for _ in range(reader.count()))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(ClientRequest[tuple[TopicOutcome, ...]]):
    """Removes topics by their names; `timeout_ms` is how long the broker may take."""

    topics: Sequence[str]
    timeout_ms: int

    name: ClassVar[str] = "DeleteTopics"
    api_key: ClassVar[int] = 20
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
        """Return what became of each topic."""
        del version
        reader.int32()  # throttle_time_ms
        return tuple(TopicOutcome(reader.text(), reader.int16(), None) for _ in range(reader.count()))


THROTTLING_QUOTA_EXCEEDED: Final = 89


class MutatedTopic(NamedTuple):
    """A topic to be made, to go, or to grow; `partitions` are those it is to have (0 where it is to go)."""

    name: str
    partitions: int


class MutationAnswer(NamedTuple):
    """The throttle time in ms, and what became of each topic."""

    throttle_ms: int
    outcomes: tuple[TopicOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMutation(ClientRequest[MutationAnswer]):
    """A change of some topics; `timeout_ms` is how long the broker may take.

    `replication_factor` counts for new topics. With `validate_only` nothing is done.
    """

    topics: Sequence[MutatedTopic]
    timeout_ms: int
    replication_factor: int = -1
    validate_only: bool = False

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
        """Append what is behind the timeout."""
        writer.boolean(value=self.validate_only)

    def read(self, reader: FieldReader, version: int) -> MutationAnswer:
        """Return what became of each topic."""
        del version
        throttle_ms = reader.int32()
        return MutationAnswer(throttle_ms, tuple(self.read_outcome(reader) for _ in range(reader.count())))

    def read_outcome(self, reader: FieldReader) -> TopicOutcome:
        """Return what became of one topic."""
        outcome = TopicOutcome(reader.text(), reader.int16(), reader.string())
        reader.tags()
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTopics(TopicMutation):
    """Makes topics."""

    name: ClassVar[str] = "CreateTopics"
    api_key: ClassVar[int] = 19
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
        """Return what became of one topic."""
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
    """Removes topics; the request knows no `validate_only`."""

    name: ClassVar[str] = "DeleteTopics"
    api_key: ClassVar[int] = 20
    versions: ClassVar[VersionRange] = VersionRange(5, 5)
    flexible_since: ClassVar[int] = 4

    def write_topic(self, writer: FieldWriter, topic: MutatedTopic) -> None:
        """Append one topic, which is no structure in this version."""
        writer.string(topic.name)

    def write_end(self, writer: FieldWriter) -> None:
        """Append nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(TopicMutation):
    """Gives topics more partitions."""

    name: ClassVar[str] = "CreatePartitions"
    api_key: ClassVar[int] = 37
    versions: ClassVar[VersionRange] = VersionRange(3, 3)
    flexible_since: ClassVar[int] = 2

    def write_topic(self, writer: FieldWriter, topic: MutatedTopic) -> None:
        """Append one topic."""
        writer.string(topic.name)
        writer.int32(topic.partitions)
        writer.count(None)  # assignments: the broker's choice
        writer.tags()
