"""Making a topic of one partition and deleting it again, as versions that every broker from Kafka 2.4 to 4.x takes.

**Source:** `CreateTopicsRequest.json`, `DeleteTopicsRequest.json`, Kafka 4.1.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from kafka_quotas.wire.api import NEVER
from kafka_quotas.wire.client_request import ClientRequest, VersionRange
from kafka_quotas.wire.field_reader import FieldReader
from kafka_quotas.wire.field_writer import FieldWriter

TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateScratchTopic(ClientRequest[int]):
    """Makes a topic of one partition with the broker's default of replicas; the answer is the topic's error code."""

    topic: str

    name: ClassVar[str] = "CreateTopics"
    api_key: ClassVar[int] = 19
    versions: ClassVar[VersionRange] = VersionRange(4, 4)
    flexible_since: ClassVar[int] = NEVER
    broker_since: ClassVar[str] = "2.4"

    def write(self, writer: FieldWriter, version: int) -> None:
        """Append the body of the request."""
        del version
        writer.count(1)
        writer.string(self.topic)
        writer.int32(1)
        writer.int16(-1)
        writer.count(0)
        writer.count(0)
        writer.int32(TIMEOUT_MS)
        writer.boolean(value=False)

    def read(self, reader: FieldReader, version: int) -> int:
        """Return the error code."""
        del version
        reader.int32()
        reader.count()
        reader.text()
        return reader.int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteScratchTopic(ClientRequest[int]):
    """Deletes a topic; the answer is the topic's error code."""

    topic: str

    name: ClassVar[str] = "DeleteTopics"
    api_key: ClassVar[int] = 20
    versions: ClassVar[VersionRange] = VersionRange(3, 3)
    flexible_since: ClassVar[int] = NEVER
    broker_since: ClassVar[str] = "2.4"

    def write(self, writer: FieldWriter, version: int) -> None:
        """Append the body of the request."""
        del version
        writer.count(1)
        writer.string(self.topic)
        writer.int32(TIMEOUT_MS)

    def read(self, reader: FieldReader, version: int) -> int:
        """Return the error code."""
        del version
        reader.int32()
        reader.count()
        reader.text()
        return reader.int16()
