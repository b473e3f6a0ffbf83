"""A client's ApiVersions request: the requests that a broker supports, and their versions.

**Source:** KIP-35, KIP-511; `ApiVersionsRequest.json`, Kafka 4.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter

_SOFTWARE_SINCE: Final = 3
_THROTTLE_TIME_SINCE: Final = 1


class OfferedVersions(NamedTuple):
    """The versions that a broker supports, by API key.

    With an error there may be none.
    """

    error_code: int
    ranges: Mapping[int, VersionRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRequest(ClientRequest[OfferedVersions]):
    """A request for the broker's versions that names the client software."""

    software_name: str = "kafka-quotas"
    software_version: str = "0"

    api_key: ClassVar[ApiKey] = ApiKey.API_VERSIONS
    versions: ClassVar[VersionRange] = VersionRange(0, 3)
    broker_since: ClassVar[str] = "0.10"

    def write(self, writer: FieldWriter, version: int) -> None:
        if version >= _SOFTWARE_SINCE:
            writer.string(self.software_name)
            writer.string(self.software_version)
            writer.tags()

    def read(self, reader: FieldReader, version: int) -> OfferedVersions:
        error_code = reader.int16()
        # A response with an error has the form of version 0, whatever was asked (KIP-511).
        if error_code:
            return OfferedVersions(error_code=error_code, ranges={})
        ranges = {}
        for _ in range(reader.count()):
            api_key = reader.int16()
            ranges[api_key] = VersionRange(reader.int16(), reader.int16())
            reader.tags()
        if version >= _THROTTLE_TIME_SINCE:
            reader.int32()
        reader.tags()
        return OfferedVersions(error_code=error_code, ranges=ranges)
