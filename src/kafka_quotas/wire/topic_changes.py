"""Making and removing many topics at once, as versions that every broker from Kafka 2.4 to 4.x takes.

These versions know no error for a mutation quota: a broker answers late instead.

**Source:** `CreateTopicsRequest.json`, `DeleteTopicsRequest.json`, Kafka 4.1; KIP-599.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kafka_quotas.wire.api import NEVER
from kafka_quotas.wire.client_request import ClientRequest, VersionRange
from kafka_quotas.wire.field_reader import FieldReader
from kafka_quotas.wire.field_writer import FieldWriter


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
