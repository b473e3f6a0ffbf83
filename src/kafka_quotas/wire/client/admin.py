"""A client's requests about quotas, settings and topics, and about a cluster's brokers, leaders, offsets and moves.

A broker enforces its mutation quota strictly in the versions of `StrictCreateTopics`, `StrictDeleteTopics` and
`CreatePartitions`: it refuses topics with THROTTLING_QUOTA_EXCEEDED. Older versions have no such error: a broker
accepts them and answers late. `CreateTopics` and `DeleteTopics` use older ones, which every broker from Kafka 2.4 to
4.x supports. The parts of a response are tuples, because a cluster with a million partitions needs a million of them.

**Source:** KIP-79, KIP-133, KIP-226, KIP-455, KIP-546, KIP-599; the definitions of these messages, Kafka 4.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.entity import Entity, Match, QuotaFilter
from kafka_quotas.wire.client.request import Answer, ClientRequest, VersionRange
from kafka_quotas.wire.codec.encoding import NO_TOPIC_ID, TopicId
from kafka_quotas.wire.codec.fields import fields_of
from kafka_quotas.wire.protocol.api_table import ErrorCode

_PASSING_ERRORS: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER)
"""What a broker answers while the controller changes."""
_MATCH_TYPES: Final = {Match.EXACT: 0, Match.DEFAULT: 1, Match.ANY: 2}
TOPIC: Final = 2
BROKER: Final = 4


class DescribedQuotas(NamedTuple):
    """The stored quotas in a broker's response, or an error."""

    error_code: int
    error_message: str | None
    entries: tuple[tuple[Entity, Mapping[str, float]], ...]
    """Entities and their quotas."""


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

    versions = VersionRange(0, 1)
    broker_since = "2.6"

    @property
    def name(self) -> str:
        return "quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuotasRequest(_QuotaRequest[DescribedQuotas]):
    """A request for the stored quotas that a filter matches."""

    quota_filter: QuotaFilter

    api_key = ApiKey.DESCRIBE_CLIENT_QUOTAS
    fields = fields_of("components[type:text match:int8 name:text?] strict:bool")
    answer_fields = fields_of(
        "_:int32 code:int16 message:text? entries[entity[type:text name:text?] values[key:text value:float64]]"
    )

    def values(self) -> Iterable[Any]:
        components = self.quota_filter.components
        return [
            (each.entity_type, _MATCH_TYPES[each.match], each.name) for each in components
        ], self.quota_filter.strict

    def answer(self, *values: Any) -> DescribedQuotas:
        code, message, entries = values
        stored = ((Entity.from_pairs(pairs), dict(quotas)) for pairs, quotas in entries)
        return DescribedQuotas(error_code=code, error_message=message, entries=tuple(stored))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuotasRequest(_QuotaRequest[tuple[EntityOutcome, ...]]):
    """A change of the quotas of some entities."""

    entries: tuple[EntityChanges, ...]
    validate_only: bool
    """Whether the broker only validates and writes nothing."""

    api_key = ApiKey.ALTER_CLIENT_QUOTAS
    fields = fields_of(
        "entries[entity[type:text name:text?] changes[key:text value:float64 remove:bool]] validate_only:bool"
    )
    answer_fields = fields_of("_:int32 entries[code:int16 message:text? entity[type:text name:text?]]")

    def values(self) -> Iterable[Any]:
        changes = ([(key, value, value is None) for key, value in entry.changes] for entry in self.entries)
        return list(zip((entry.entity.parts for entry in self.entries), changes, strict=True)), self.validate_only

    def answer(self, *values: Any) -> tuple[EntityOutcome, ...]:
        return tuple(EntityOutcome(Entity.from_pairs(pairs), code, message) for code, message, pairs in values[0])

    def asks_to_try_again(self, answer: tuple[EntityOutcome, ...]) -> bool:
        """Return whether no controller was available to apply the changes.

        Setting the same values twice is harmless.
        """
        return bool(answer) and all(outcome.error_code in _PASSING_ERRORS for outcome in answer)


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

    api_key = ApiKey.DESCRIBE_CONFIGS
    versions = VersionRange(1, 4)
    broker_since = "1.1"
    fields = fields_of("resources[type:int8 name:text configs:[text]] _:bool _:bool@3+")  # synonyms, documentation
    answer_fields = fields_of(
        "_:int32 results[code:int16 message:text? _:int8 name:text configs[name:text value:text?"
        " _:bool _:int8 _:bool _[_:text? _:text? _:int8] _:int8@3+ _:text?@3+]]"
    )

    def values(self) -> Iterable[Any]:
        return ([(self.resource_type, name, self.config_names) for name in self.resource_names],)

    def answer(self, *values: Any) -> tuple[ConfigResult, ...]:
        return tuple(
            ConfigResult(error_code=code, error_message=message, resource_name=name, configs=dict(configs))
            for code, message, name, configs in values[0]
        )


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
    validate_only: bool = False
    """Whether the broker only validates the change. Deletion has no such field."""

    def answer(self, *values: Any) -> TopicOutcomes:
        throttle_ms, topics = values
        return TopicOutcomes(throttle_ms, tuple(TopicOutcome(*topic) for topic in topics))


class CreateTopics(TopicMutation):
    """A request to create topics."""

    __slots__ = ()

    api_key = ApiKey.CREATE_TOPICS
    versions = VersionRange(4, 4)
    broker_since = "2.4"
    fields = fields_of(
        "topics[name:text partitions:int32 replicas:int16 assignments:[int32] configs:[int32]]"
        " timeout:int32 validate_only:bool"
    )
    answer_fields = fields_of(
        "throttle:int32 topics[name:text code:int16 message:text?"
        " _:int32@5+ _:int16@5+ _[_:text? _:text? _:bool _:int8 _:bool]@5+]"
    )

    def values(self) -> Iterable[Any]:
        topics = [(topic.name, topic.partitions, topic.replication_factor, (), ()) for topic in self.topics]
        return topics, self.timeout_ms, self.validate_only


class StrictCreateTopics(CreateTopics):
    """A request to create topics that a mutation quota may refuse."""

    __slots__ = ()

    versions = VersionRange(6, 6)
    broker_since = "2.7"


class DeleteTopics(TopicMutation):
    """A request to delete topics by name."""

    __slots__ = ()

    api_key = ApiKey.DELETE_TOPICS
    versions = VersionRange(3, 3)
    broker_since = "2.4"
    fields = fields_of("topics:[text] timeout:int32")
    answer_fields = fields_of("throttle:int32 topics[name:text code:int16 message:text?@5+]")

    def values(self) -> Iterable[Any]:
        return [topic.name for topic in self.topics], self.timeout_ms


class StrictDeleteTopics(DeleteTopics):
    """A request to delete topics that a mutation quota may refuse."""

    __slots__ = ()

    versions = VersionRange(5, 5)
    broker_since = "2.7"


class CreatePartitions(TopicMutation):
    """A request to give topics more partitions."""

    __slots__ = ()

    api_key = ApiKey.CREATE_PARTITIONS
    versions = VersionRange(3, 3)
    broker_since = "2.7"
    fields = fields_of("topics[name:text partitions:int32 _:[int32]] timeout:int32 validate_only:bool")
    answer_fields = fields_of("throttle:int32 topics[name:text code:int16 message:text?]")

    def values(self) -> Iterable[Any]:
        topics = [(topic.name, topic.partitions) for topic in self.topics]  # the broker assigns the replicas
        return topics, self.timeout_ms, self.validate_only


class Broker(NamedTuple):
    """A live broker and its advertised address."""

    node_id: int
    host: str
    port: int


class Partition(NamedTuple):
    """A partition and its leader."""

    number: int
    leader_id: int
    """The node id of the leader; -1 for none."""


class Topic(NamedTuple):
    """A topic with its partitions, or an error."""

    name: str
    error_code: int
    partitions: tuple[Partition, ...]


class Metadata(NamedTuple):
    """A cluster as one of its brokers knows it."""

    brokers: tuple[Broker, ...]
    controller_id: int
    """The node id of the controller; -1 if unknown."""
    topics: tuple[Topic, ...]
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(ClientRequest[Metadata]):
    """A request for the brokers and some topics, without creating any.

    The versions are those whose responses are read here. Others can be written.
    """

    topics: Sequence[str] | None = ()
    """The names of topics; None: all."""
    topic_ids: Sequence[TopicId] = ()
    """The ids of topics, in versions from 12 on."""

    api_key = ApiKey.METADATA
    versions = VersionRange(4, 9)
    broker_since = "1.0"
    # Without the first flag a broker may create every topic that the request names (KIP-4). The others ask for the
    # operations that are allowed on the cluster and on topics.
    fields = fields_of("topics[id:uuid@10+ name:text?] _:bool@4+ _:bool@8-10 _:bool@8+")
    answer_fields = fields_of(
        "_:int32 brokers[id:int32 host:text port:int32 _:text?] cluster:text? controller:int32"
        " topics[code:int16 name:text _:bool"
        " partitions[_:int16 number:int32 leader:int32 _:int32@7+ _:int32s _:int32s _:int32s@5+] _:int32@8+] _:int32@8+"
    )

    def values(self) -> Iterable[Any]:
        if self.topics is None:
            return (None,)
        named = [(NO_TOPIC_ID, name) for name in self.topics]
        return ([*named, *((topic_id, None) for topic_id in self.topic_ids)],)

    def answer(self, *values: Any) -> Metadata:
        brokers, cluster_id, controller_id, topics = values
        return Metadata(
            brokers=tuple(Broker(*broker) for broker in brokers),
            controller_id=controller_id,
            topics=tuple(Topic(name, code, tuple(Partition(*each) for each in found)) for code, name, found in topics),
            cluster_id=cluster_id,
        )


_NOTHING: Final = -1
"""No replica asks, the leader epoch is not known, and the latest timestamp is asked for."""


class FoundOffset(NamedTuple):
    """The offset after the last record, or an error."""

    error_code: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffset(ClientRequest[FoundOffset]):
    """A request to the leader of a partition for its end offset, of what is not committed too."""

    topic: str
    partition: int

    api_key = ApiKey.LIST_OFFSETS
    versions = VersionRange(2, 2)
    broker_since = "0.11"
    fields = fields_of("replica:int32 _:int8 topics[name:text partitions[number:int32 epoch:int32@4+ timestamp:int64]]")
    answer_fields = fields_of("_:int32 topics[_:text partitions[_:int32 code:int16 _:int64 offset:int64]]")

    def values(self) -> Iterable[Any]:
        return _NOTHING, [(self.topic, [(self.partition, _NOTHING, _NOTHING)])]

    def answer(self, *values: Any) -> FoundOffset:
        found = [FoundOffset(*partition) for (partitions,) in values[0] for partition in partitions]
        if not found:
            raise ProtocolError("a leader answered without an offset")
        return found[0]


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

    api_key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    versions = VersionRange(0, 0)
    broker_since = "2.4"
    fields = fields_of("timeout:int32 _:[text]")
    answer_fields = fields_of(
        "_:int32 code:int16 message:text? topics[name:text _[_:int32 _:int32s _:int32s _:int32s]]"
    )

    def answer(self, *values: Any) -> Reassignments:
        code, message, topics = values
        return Reassignments(error_code=code, error_message=message, topics=tuple(name for (name,) in topics))
