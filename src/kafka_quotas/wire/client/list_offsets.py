"""A client's ListOffsets request: the end offset of a partition.

**Source:** `ListOffsetsRequest.json`, Kafka 4.1; KIP-79.
"""

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter

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
