"""A client's DescribeClientQuotas and AlterClientQuotas requests.

**Source:** KIP-546; `DescribeClientQuotasRequest.json`, `AlterClientQuotasRequest.json`, Kafka 4.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_filter import Match, QuotaFilter
from kafka_quotas.wire.client.request import Answer, ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter
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
