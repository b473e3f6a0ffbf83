"""A client's DescribeConfigs request: settings of brokers and topics.

**Source:** KIP-133, KIP-226; `DescribeConfigsRequest.json`, `DescribeConfigsResponse.json`, Kafka 4.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter

TOPIC: Final = 2
BROKER: Final = 4
_TYPE_AND_DOCUMENTATION_SINCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResult:
    """The settings of one resource, or an error."""

    error_code: int
    error_message: str | None
    resource_name: str
    configs: Mapping[str, str | None]
    """The values by name, None for one that is not set or sensitive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest(ClientRequest[tuple[ConfigResult, ...]]):
    """A request for the named settings of some resources of one type (`TOPIC` or `BROKER`)."""

    resource_type: int
    resource_names: tuple[str, ...]
    config_names: tuple[str, ...] | None
    """The names of settings; None: all."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS
    versions: ClassVar[VersionRange] = VersionRange(1, 4)
    broker_since: ClassVar[str] = "1.1"

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.count(len(self.resource_names))
        for resource_name in self.resource_names:
            writer.int8(self.resource_type)
            writer.string(resource_name)
            writer.count(None if self.config_names is None else len(self.config_names))
            for config_name in self.config_names or ():
                writer.string(config_name)
            writer.tags()
        writer.boolean(value=False)  # include_synonyms
        if version >= _TYPE_AND_DOCUMENTATION_SINCE:
            writer.boolean(value=False)
        writer.tags()

    def read(self, reader: FieldReader, version: int) -> tuple[ConfigResult, ...]:
        reader.int32()  # throttle_time_ms
        results = tuple(_result(reader, version) for _ in range(reader.count()))
        reader.tags()
        return results


def _result(reader: FieldReader, version: int) -> ConfigResult:
    error_code, error_message = reader.int16(), reader.string()
    reader.int8()  # resource type
    name = reader.text()
    configs = dict(_config(reader, version) for _ in range(reader.count()))
    reader.tags()
    return ConfigResult(error_code=error_code, error_message=error_message, resource_name=name, configs=configs)


def _config(reader: FieldReader, version: int) -> tuple[str, str | None]:
    config = reader.text(), reader.string()
    reader.boolean()  # read_only
    reader.int8()  # source
    reader.boolean()  # is_sensitive
    for _ in range(reader.count()):  # synonyms
        reader.string()
        reader.string()
        reader.int8()
        reader.tags()
    if version >= _TYPE_AND_DOCUMENTATION_SINCE:
        reader.int8()
        reader.string()
    reader.tags()
    return config
