"""A client's requests to create, delete and grow topics.

A broker enforces its mutation quota strictly in the versions of `StrictCreateTopics`, `StrictDeleteTopics` and
`CreatePartitions`: it refuses topics with THROTTLING_QUOTA_EXCEEDED. Older versions have no such error: a broker
accepts them and answers late. `CreateTopics` and `DeleteTopics` use older ones, which every broker from Kafka 2.4 to
4.x supports.

**Source:** KIP-599; `CreateTopicsRequest.json`, `DeleteTopicsRequest.json`, `CreatePartitionsRequest.json`, Kafka 4.1.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter

_DETAILS_SINCE: Final = 5
_DELETE_MESSAGE_SINCE: Final = 5


class NewTopic(NamedTuple):
    """A topic to create, delete or grow."""

    name: str
    partitions: int
    """The partition count after the change; 0 to delete."""
    replication_factor: int = -1
    """The replication factor of a new topic; -1 for the broker's default."""


class TopicOutcome(NamedTuple):
    """The result of one topic."""

    name: str
    error_code: int
    """The error code; 0 for success."""
    error_message: str | None


class TopicOutcomes(NamedTuple):
    """The throttle time in ms, and the result of each topic."""

    throttle_ms: int
    topics: tuple[TopicOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMutation(ClientRequest[TopicOutcomes]):
    """A change of some topics."""

    topics: Sequence[NewTopic]
    timeout_ms: int
    """The time that the broker may take."""
    validate_only: bool = False
    """Whether the broker only validates the change. Deletion has no such field."""

    @abstractmethod
    def _write_topic(self, writer: FieldWriter, topic: NewTopic) -> None: ...

    def _read_outcome(self, reader: FieldReader, version: int) -> TopicOutcome:
        outcome = TopicOutcome(reader.text(), reader.int16(), reader.string())
        reader.tags()
        return outcome

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.count(len(self.topics))
        for topic in self.topics:
            self._write_topic(writer, topic)
        writer.int32(self.timeout_ms)
        if self.api_key is not ApiKey.DELETE_TOPICS:
            writer.boolean(value=self.validate_only)
        writer.tags()

    def read(self, reader: FieldReader, version: int) -> TopicOutcomes:
        throttle_ms = reader.int32()
        return TopicOutcomes(throttle_ms, tuple(self._read_outcome(reader, version) for _ in range(reader.count())))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(TopicMutation):
    """A request to create topics."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS
    versions: ClassVar[VersionRange] = VersionRange(4, 4)
    broker_since: ClassVar[str] = "2.4"

    def _write_topic(self, writer: FieldWriter, topic: NewTopic) -> None:
        writer.string(topic.name)
        writer.int32(topic.partitions)
        writer.int16(topic.replication_factor)
        writer.count(0)  # assignments
        writer.count(0)  # configs
        writer.tags()

    def _read_outcome(self, reader: FieldReader, version: int) -> TopicOutcome:
        outcome = TopicOutcome(reader.text(), reader.int16(), reader.string())
        if version >= _DETAILS_SINCE:
            reader.skip(6)  # partitions, replication factor
            for _ in range(reader.count()):  # configs: name, value, read-only, source, sensitive
                reader.string()
                reader.string()
                reader.skip(3)
                reader.tags()
        reader.tags()
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictCreateTopics(CreateTopics):
    """A request to create topics that a mutation quota may refuse."""

    versions: ClassVar[VersionRange] = VersionRange(6, 6)
    broker_since: ClassVar[str] = "2.7"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(TopicMutation):
    """A request to delete topics by name."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS
    versions: ClassVar[VersionRange] = VersionRange(3, 3)
    broker_since: ClassVar[str] = "2.4"

    def _write_topic(self, writer: FieldWriter, topic: NewTopic) -> None:
        writer.string(topic.name)  # no structure in these versions, so no tags

    def _read_outcome(self, reader: FieldReader, version: int) -> TopicOutcome:
        name, error_code = reader.text(), reader.int16()
        message = reader.string() if version >= _DELETE_MESSAGE_SINCE else None
        reader.tags()
        return TopicOutcome(name, error_code, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictDeleteTopics(DeleteTopics):
    """A request to delete topics that a mutation quota may refuse."""

    versions: ClassVar[VersionRange] = VersionRange(5, 5)
    broker_since: ClassVar[str] = "2.7"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(TopicMutation):
    """A request to give topics more partitions."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS
    versions: ClassVar[VersionRange] = VersionRange(3, 3)
    broker_since: ClassVar[str] = "2.7"

    def _write_topic(self, writer: FieldWriter, topic: NewTopic) -> None:
        writer.string(topic.name)
        writer.int32(topic.partitions)
        writer.count(None)  # assignments: the broker's choice
        writer.tags()
