"""A client's ListPartitionReassignments request: whether partitions are being moved.

**Source:** KIP-455; `ListPartitionReassignmentsRequest.json`, Kafka 4.1.
"""

from dataclasses import dataclass
from typing import ClassVar

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter


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
        topics = tuple(_topic(reader) for _ in range(reader.count()))
        reader.tags()
        return Reassignments(error_code=error_code, error_message=error_message, topics=topics)


def _topic(reader: FieldReader) -> str:
    name = reader.text()
    for _ in range(reader.count()):
        reader.int32()  # partition
        reader.skip_int32s()  # replicas
        reader.skip_int32s()  # being added
        reader.skip_int32s()  # being removed
        reader.tags()
    reader.tags()
    return name
