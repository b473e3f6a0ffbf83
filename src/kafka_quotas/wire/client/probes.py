"""Requests whose only purpose is their cost to a broker: one small message per API in an old version.

Every broker from Kafka 2.4 to 4.x supports these versions, all with a throttle time in the response. A Produce carries
a record batch of one record.

**Source:** the message definitions of Kafka 3.9 and 4.1; KIP-98, `DefaultRecordBatch` and `DefaultRecord`, Kafka 4.3;
CRC-32C as in RFC 3720, appendix B.4.
"""

from dataclasses import dataclass
from functools import cache
from struct import Struct, pack
from typing import ClassVar, Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.client.admin import TOPIC, CreateTopics, DescribeConfigsRequest, NewTopic
from kafka_quotas.wire.client.metadata import EndOffset, MetadataRequest
from kafka_quotas.wire.client.request import Answer, ClientRequest, VersionRange
from kafka_quotas.wire.codec.fields import FieldReader, FieldWriter
from kafka_quotas.wire.codec.skip import encode_unsigned_varint

_BEFORE_CRC: Final = Struct(">qiib")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_LENGTH_FROM: Final = 12
"""Bytes before those that the batch's length counts."""
_NO_LEADER_EPOCH: Final = -1
_MAGIC: Final = 2
_NO_PRODUCER: Final = (-1, -1, -1)  # its id, epoch and first sequence
_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, its bits reversed
_ALL_ONES: Final = 0xFFFFFFFF


def single_record_batch(value: bytes, *, now_ms: int) -> bytes:
    """Return a batch of magic 2 with one record: no key, no headers, not compressed.

    Args:
        value: The record's value.
        now_ms: The record's time (milliseconds since the epoch).
    """
    attributes_and_deltas, no_key, no_headers = bytes(3), b"\x01", b"\0"
    record = attributes_and_deltas + no_key + _signed_varint(len(value)) + value + no_headers
    records = _signed_varint(len(record)) + record
    checked = _AFTER_CRC.pack(0, 0, now_ms, now_ms, *_NO_PRODUCER, 1) + records
    length = _BEFORE_CRC.size + 4 + len(checked) - _LENGTH_FROM
    return _BEFORE_CRC.pack(0, length, _NO_LEADER_EPOCH, _MAGIC) + crc32c(checked).to_bytes(4, "big") + checked


def crc32c(data: bytes) -> int:
    """Return the CRC-32C checksum of some bytes."""
    table, crc = _table(), _ALL_ONES
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ALL_ONES


@cache
def _table() -> tuple[int, ...]:
    remainders = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        remainders.append(crc)
    return tuple(remainders)


def _signed_varint(value: int) -> bytes:
    return encode_unsigned_varint(2 * value)


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
    # No transaction, the acknowledgement of the leader, which has 30 s.
    head = _text(None) + pack(">hi", 1, 30_000)
    body = head + _partition_0(target) + pack(">i", len(records)) + records
    return _probe(ApiKey.PRODUCE, 7, body, throttle_last=True)


def fetch_probe(target: Target, *, offset: int, max_bytes: int) -> CostProbe:
    """Return a Fetch that does not wait and finds no data at the end of the partition."""
    # Replica, wait, min_bytes, max_bytes, isolation level, session and its epoch.
    head = pack(">iiiibii", -1, 0, 0, max_bytes, 0, 0, -1)
    # Leader epoch, offset, log start, max_bytes; no forgotten topics.
    place = pack(">iqqii", -1, offset, -1, max_bytes, 0)
    return _probe(ApiKey.FETCH, 11, head + _partition_0(target) + place + _text(""))


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
    """Return one topic with one partition, up to its number."""
    return pack(">i", 1) + _text(target.topic) + pack(">ii", 1, 0)


def _with_body_of(request: ClientRequest[Answer], version: int) -> CostProbe:
    writer = FieldWriter(flexible=False)
    request.write(writer, version)
    return _probe(request.api_key, version, writer.content())


def _probe(api_key: ApiKey, version: int, body: bytes, *, throttle_last: bool = False) -> CostProbe:
    """Return the probe of an API as an instance of its own class.

    `ClientRequest` identifies a request by its class.
    """
    facts = {"api_key": api_key, "versions": VersionRange(version, version), "__slots__": ()}
    kind: type[CostProbe] = type(f"{api_key.name}Probe", (CostProbe,), facts)
    return kind(body=body, throttle_last=throttle_last)
