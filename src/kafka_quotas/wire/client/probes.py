"""Requests whose only purpose is their cost to a broker: one small message per API in an old version.

Every broker from Kafka 2.4 to 4.x supports these versions, all with a throttle time in the response.

**Source:** the message definitions of Kafka 3.9 and 4.1.
"""

from dataclasses import dataclass
from struct import pack
from typing import ClassVar, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.admin import (
    TOPIC,
    CreateTopics,
    DescribeConfigsRequest,
    EndOffset,
    MetadataRequest,
    NewTopic,
)
from kafka_quotas.wire.client.records import FETCH_VERSION, PRODUCE_VERSION, FetchRequest, ProduceRequest
from kafka_quotas.wire.client.request import Answer, ClientRequest, VersionRange
from kafka_quotas.wire.codec.fields import INT32, FieldReader, FieldWriter


class ProbeAnswer(NamedTuple):
    """The measured part of a response."""

    throttle_ms: int
    size: int
    """The number of bytes after the length field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostProbe(ClientRequest[ProbeAnswer]):
    """A request with this body."""

    body: bytes
    throttle_last: bool = False
    """Whether the throttle time ends the response instead of starting it."""

    broker_since: ClassVar[str] = "2.4"

    def write(self, writer: FieldWriter, version: int) -> None:
        writer.raw(self.body)

    def read(self, reader: FieldReader, version: int) -> ProbeAnswer:
        size = reader.left + 4
        if self.throttle_last:
            reader.skip(reader.left - INT32.size)
        return self.answer(reader.fixed(INT32), size)

    def answer(self, *values: int) -> ProbeAnswer:
        return ProbeAnswer(*values)


class Target(NamedTuple):
    """The objects that probes name.

    They are a topic whose partition 0 the broker leads, the end of that partition, and a consumer group.
    """

    topic: str
    end_offset: int
    group: str


def produce_probe(target: Target, records: bytes) -> CostProbe:
    """Return a Produce of a record batch, acknowledged by the leader."""
    return _with_body_of(ProduceRequest(topic=target.topic, records=records), PRODUCE_VERSION, throttle_last=True)


def fetch_probe(target: Target, *, offset: int, max_bytes: int) -> CostProbe:
    """Return a Fetch that does not wait and finds no data at the end of the partition."""
    return _with_body_of(FetchRequest(topic=target.topic, offsets={0: offset}, max_bytes=max_bytes), FETCH_VERSION)


def small_probes(target: Target) -> tuple[CostProbe, ...]:
    """Return a probe of every other API that clients use regularly."""
    group = _text(target.group)
    member = group + pack(">i", 1) + _text("nobody") + _text(None)
    offset = _partition_0(target) + pack(">qi", target.end_offset, -1) + _text(None)
    # The coordinator returns a member id at once to a first JoinGroup, whose member is empty.
    joining = pack(">ii", 10_000, 10_000) + _text("") + _text(None) + _text("consumer")
    range_protocol = pack(">i", 1) + _text("range") + pack(">i", 0)
    configs = DescribeConfigsRequest(resource_type=TOPIC, resource_names=(target.topic,), config_names=None)
    return (
        _with_body_of(EndOffset(topic=target.topic, partition=0), 5),
        _with_body_of(MetadataRequest(topics=(target.topic,)), 8),
        _probe(ApiKey.OFFSET_COMMIT, 6, group + pack(">i", -1) + _text("") + offset),
        _probe(ApiKey.OFFSET_FETCH, 5, group + _partition_0(target)),
        _probe(ApiKey.FIND_COORDINATOR, 2, group + b"\0"),
        _probe(ApiKey.JOIN_GROUP, 5, group + joining + range_protocol),
        _probe(ApiKey.HEARTBEAT, 3, member),
        _probe(ApiKey.SYNC_GROUP, 3, member + pack(">i", 0)),
        _probe(ApiKey.DESCRIBE_GROUPS, 4, pack(">i", 1) + group + b"\0"),
        _probe(ApiKey.LIST_GROUPS, 2, b""),
        _probe(ApiKey.API_VERSIONS, 2, b"", throttle_last=True),
        _with_body_of(configs, 3),
    )


def topic_check(target: Target) -> CostProbe:
    """Return a CreateTopics that only validates a topic of one partition."""
    topics = [NewTopic(target.topic, 1)]
    return _with_body_of(CreateTopics(topics=topics, timeout_ms=30_000, validate_only=True), 4)


def _text(value: str | None) -> bytes:
    writer = FieldWriter(flexible=False)
    writer.string(value)
    return writer.content()


def _partition_0(target: Target) -> bytes:
    return pack(">i", 1) + _text(target.topic) + pack(">ii", 1, 0)


def _with_body_of(request: ClientRequest[Answer], version: int, *, throttle_last: bool = False) -> CostProbe:
    writer = FieldWriter(flexible=False)
    request.write(writer, version)
    return _probe(request.api_key, version, writer.content(), throttle_last=throttle_last)


def _probe(api_key: ApiKey, version: int, body: bytes, *, throttle_last: bool = False) -> CostProbe:
    """Return the probe of an API as an instance of its own class.

    `ClientRequest` identifies a request by its class.
    """
    facts = {"api_key": api_key, "versions": VersionRange(version, version), "__slots__": ()}
    kind: type[CostProbe] = type(f"{api_key.name}Probe", (CostProbe,), facts)
    return kind(body=body, throttle_last=throttle_last)
