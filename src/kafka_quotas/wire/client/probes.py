"""Requests whose only purpose is their cost to a broker: one small message per API, each in one old version.

Every broker from Kafka 2.4 to 4.x supports these versions, all with a throttle time in the response.

**Source:** the message definitions of Kafka 3.9 and 4.1.
"""

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.request import ClientRequest, VersionRange
from kafka_quotas.wire.codec.reader import FieldReader
from kafka_quotas.wire.codec.writer import FieldWriter
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE

TOPIC_RESOURCE: Final = 2
_INT64: Final = Struct(">q")


class ProbeAnswer(NamedTuple):
    """The measured part of a response."""

    throttle_ms: int
    """The throttle time."""
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
        """Append the body."""
        del version
        writer.raw(self.body)

    def read(self, reader: FieldReader, version: int) -> ProbeAnswer:
        """Return the throttle time and the size."""
        del version
        size = reader.left + 4
        if self.throttle_last:
            reader.skip(reader.left - 4)
        return ProbeAnswer(reader.int32(), size)


class Target(NamedTuple):
    """The objects that probes name.

    They are a topic whose partition 0 the broker leads, the end of that partition, and a consumer group.
    """

    topic: str
    end_offset: int
    group: str


def produce_probe(target: Target, records: bytes) -> CostProbe:
    """Return a Produce of a record batch, acknowledged by the leader."""
    body = _writer()
    body.string(None)
    body.int16(1)
    body.int32(30_000)
    _topic_head(body, target)
    body.byte_string(records)
    return _made(ApiKey.PRODUCE, 7, body, throttle_last=True)


def fetch_probe(target: Target, *, offset: int, max_bytes: int) -> CostProbe:
    """Return a Fetch that does not wait and finds no data at the end of the partition."""
    body = _writer()
    for value in (-1, 0, 0, max_bytes):
        body.int32(value)
    body.int8(0)
    body.int32(0)
    body.int32(-1)
    _topic_head(body, target)
    body.int32(-1)
    body.raw(_INT64.pack(offset))
    body.raw(_INT64.pack(-1))
    body.int32(max_bytes)
    body.count(0)
    body.string("")
    return _made(ApiKey.FETCH, 11, body)


def small_probes(target: Target) -> tuple[CostProbe, ...]:
    """Return a probe of every other API that clients use regularly."""
    return (
        _list_offsets(target),
        _metadata(target),
        _offset_commit(target),
        _offset_fetch(target),
        _find_coordinator(target),
        _join_group(target),
        _member(ApiKey.HEARTBEAT, 3, target),
        _sync_group(target),
        _describe_groups(target),
        _made(ApiKey.LIST_GROUPS, 2, _writer()),
        _made(ApiKey.API_VERSIONS, 2, _writer(), throttle_last=True),
        _describe_configs(target),
    )


def _list_offsets(target: Target) -> CostProbe:
    body = _writer()
    body.int32(-1)
    body.int8(0)
    _topic_head(body, target)
    body.int32(-1)
    body.raw(_INT64.pack(-1))
    return _made(ApiKey.LIST_OFFSETS, 5, body)


def _metadata(target: Target) -> CostProbe:
    body = _writer()
    body.count(1)
    body.string(target.topic)
    for _ in range(3):
        body.boolean(value=False)
    return _made(ApiKey.METADATA, 8, body)


def _offset_commit(target: Target) -> CostProbe:
    body = _writer()
    body.string(target.group)
    body.int32(-1)
    body.string("")
    _topic_head(body, target)
    body.raw(_INT64.pack(target.end_offset))
    body.int32(-1)
    body.string(None)
    return _made(ApiKey.OFFSET_COMMIT, 6, body)


def _offset_fetch(target: Target) -> CostProbe:
    body = _writer()
    body.string(target.group)
    _topic_head(body, target)
    return _made(ApiKey.OFFSET_FETCH, 5, body)


def _find_coordinator(target: Target) -> CostProbe:
    body = _writer()
    body.string(target.group)
    body.int8(0)
    return _made(ApiKey.FIND_COORDINATOR, 2, body)


def _join_group(target: Target) -> CostProbe:
    """Return a first JoinGroup, to which the coordinator immediately returns a member id."""
    body = _writer()
    body.string(target.group)
    body.int32(10_000)
    body.int32(10_000)
    body.string("")
    body.string(None)
    body.string("consumer")
    body.count(1)
    body.string("range")
    body.byte_string(b"")
    return _made(ApiKey.JOIN_GROUP, 5, body)


def _member(api_key: ApiKey, version: int, target: Target) -> CostProbe:
    return _made(api_key, version, _member_head(target))


def _sync_group(target: Target) -> CostProbe:
    body = _member_head(target)
    body.count(0)
    return _made(ApiKey.SYNC_GROUP, 3, body)


def _member_head(target: Target) -> FieldWriter:
    """Return a group, a generation, a member that is none, no instance."""
    body = _writer()
    body.string(target.group)
    body.int32(1)
    body.string("nobody")
    body.string(None)
    return body


def _describe_groups(target: Target) -> CostProbe:
    body = _writer()
    body.count(1)
    body.string(target.group)
    body.boolean(value=False)
    return _made(ApiKey.DESCRIBE_GROUPS, 4, body)


def _describe_configs(target: Target) -> CostProbe:
    body = _writer()
    body.count(1)
    body.int8(TOPIC_RESOURCE)
    body.string(target.topic)
    body.count(None)
    body.boolean(value=False)
    body.boolean(value=False)
    return _made(ApiKey.DESCRIBE_CONFIGS, 3, body)


def topic_check(target: Target) -> CostProbe:
    """Return a CreateTopics that only validates a topic of one partition."""
    body = _writer()
    body.count(1)
    body.string(target.topic)
    body.int32(1)
    body.raw(b"\xff\xff")  # replication factor: the broker's default
    body.count(0)
    body.count(0)
    body.int32(30_000)
    body.boolean(value=True)
    return _made(ApiKey.CREATE_TOPICS, 4, body)


def _writer() -> FieldWriter:
    return FieldWriter(flexible=False)


def _topic_head(body: FieldWriter, target: Target) -> None:
    """Append one topic with one partition, number 0."""
    body.count(1)
    body.string(target.topic)
    body.count(1)
    body.int32(0)


def _made(api_key: ApiKey, version: int, body: FieldWriter, *, throttle_last: bool = False) -> CostProbe:
    """Return the probe of an API as an instance of its own class.

    `ClientRequest` identifies a request by its class.
    """
    name = API_TABLE[api_key].name
    facts = {
        "name": name,
        "api_key": api_key,
        "versions": VersionRange(version, version),
        "flexible_since": NEVER,
        "__slots__": (),
    }
    kind: type[CostProbe] = type(f"{name}Probe", (CostProbe,), facts)
    return kind(body=body.content(), throttle_last=throttle_last)
