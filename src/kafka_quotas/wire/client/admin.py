"""A client's requests about quotas, settings and topics.

A broker enforces its mutation quota strictly in the versions of `StrictCreateTopics`, `StrictDeleteTopics` and
`CreatePartitions`: it refuses topics with THROTTLING_QUOTA_EXCEEDED. Older versions have no such error: a broker
accepts them and answers late. `CreateTopics` and `DeleteTopics` use older ones, which every broker from Kafka 2.4 to
4.x supports.

**Source:** KIP-133, KIP-226, KIP-546, KIP-599; the definitions of DescribeClientQuotas, AlterClientQuotas,
DescribeConfigs, CreateTopics, DeleteTopics and CreatePartitions, Kafka 4.1.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import Match, QuotaFilter
from kafka_quotas.wire.client.request import Answer, ClientRequest, VersionRange
from kafka_quotas.wire.codec.fields import FieldReader, FieldWriter
from kafka_quotas.wire.protocol.error_code import ErrorCode

_PASSING_ERRORS: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER)
"""What a broker answers while the controller changes."""
_MATCH_TYPES: Final = {Match.EXACT: 0, Match.DEFAULT: 1, Match.ANY: 2}


class StoredQuotas(NamedTuple):
    """An entity and its quotas.

    It is a tuple because there may be a hundred thousand.
    """

    entity: Entity
    quotas: Mapping[str, float]


class DescribedQuotas(NamedTuple):
    """The stored quotas in a broker's response, or an error."""

    error_code: int
    error_message: str | None
    entries: tuple[StoredQuotas, ...]


class EntityChanges(NamedTuple):
    """An entity and the changes to its keys, in order: the new value, or None to remove the key."""

    entity: Entity
    changes: tuple[tuple[str, float | None], ...]


class EntityOutcome(NamedTuple):
    """The result of the changes to one entity."""

    entity: Entity
    error_code: int
    """The error code; 0 for success."""
    error_message: str | None


class _QuotaRequest(ClientRequest[Answer]):
    __slots__ = ()

    versions: ClassVar[VersionRange] = VersionRange(0, 1)
    broker_since: ClassVar[str] = "2.6"

    @property
    def name(self) -> str:
        return "quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuotasRequest(_QuotaRequest[DescribedQuotas]):
    """A request for the stored quotas that a filter matches."""

    quota_filter: QuotaFilter

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLIENT_QUOTAS

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.count(len(self.quota_filter.components))
        for component in self.quota_filter.components:
            writer.string(component.entity_type)
            writer.int8(_MATCH_TYPES[component.match])
            writer.string(component.name)
            writer.tags()
        writer.boolean(value=self.quota_filter.strict)
        writer.tags()

    def read(self, reader: FieldReader, version: int) -> DescribedQuotas:
        reader.int32()  # throttle_time_ms
        error_code, error_message = reader.int16(), reader.string()
        entries = tuple(_stored(reader) for _ in range(reader.count()))
        reader.tags()
        return DescribedQuotas(error_code=error_code, error_message=error_message, entries=entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuotasRequest(_QuotaRequest[tuple[EntityOutcome, ...]]):
    """A change of the quotas of some entities."""

    entries: tuple[EntityChanges, ...]
    validate_only: bool
    """Whether the broker only validates and writes nothing."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_CLIENT_QUOTAS

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.count(len(self.entries))
        for entity, changes in self.entries:
            writer.count(len(entity.parts))
            for kind, name in entity.parts:
                writer.string(kind)
                writer.string(name)
                writer.tags()
            writer.count(len(changes))
            for key, value in changes:
                writer.string(key)
                writer.float64(0.0 if value is None else value)
                writer.boolean(value=value is None)
                writer.tags()
            writer.tags()
        writer.boolean(value=self.validate_only)
        writer.tags()

    def read(self, reader: FieldReader, version: int) -> tuple[EntityOutcome, ...]:
        reader.int32()  # throttle_time_ms
        outcomes = tuple(_outcome(reader) for _ in range(reader.count()))
        reader.tags()
        return outcomes

    def asks_to_try_again(self, answer: tuple[EntityOutcome, ...]) -> bool:
        """Return whether no controller was available to apply the changes.

        Setting the same values twice is harmless.
        """
        return bool(answer) and all(outcome.error_code in _PASSING_ERRORS for outcome in answer)


def _stored(reader: FieldReader) -> StoredQuotas:
    entity = _entity(reader)
    quotas = {}
    for _ in range(reader.count()):
        key = reader.text()
        quotas[key] = reader.float64()
        reader.tags()
    reader.tags()
    return StoredQuotas(entity, quotas)


def _outcome(reader: FieldReader) -> EntityOutcome:
    error_code, error_message = reader.int16(), reader.string()
    entity = _entity(reader)
    reader.tags()
    return EntityOutcome(entity, error_code, error_message)


def _entity(reader: FieldReader) -> Entity:
    pairs = []
    for _ in range(reader.count()):
        pairs.append((reader.text(), reader.string()))
        reader.tags()
    return Entity.from_pairs(pairs)


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
