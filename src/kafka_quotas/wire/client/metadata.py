"""A client's requests about a cluster: its brokers, the leaders, end offsets and moves of partitions.

The parts of a response are tuples, because a cluster with a million partitions needs a million of them.

**Source:** `MetadataRequest.json`, `ListOffsetsRequest.json`, `ListPartitionReassignmentsRequest.json` and their
responses, Kafka 4.1; KIP-79, KIP-455.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.encoding import NO_TOPIC_ID, TopicId
from kafka_quotas.wire.codec.fields import fields_of


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

    def values(self) -> Iterable[Any]:
        return (self.timeout_ms,)

    def answer(self, *values: Any) -> Reassignments:
        code, message, topics = values
        return Reassignments(error_code=code, error_message=message, topics=tuple(name for (name,) in topics))
