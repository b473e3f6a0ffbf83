"""A Produce request: the acknowledgements it wants, and its partitions, found and cut out.

A request with `acks=0` gets no response, which matters to any code that pairs responses with requests. Topics are
identified by name, from version 13 on by id. The remaining parts are copied unchanged, including unknown tagged fields.

**Source:** KIP-98 (transactional id from version 3), KIP-482 (compact from version 9), KIP-516 (topic ids);
`ProduceRequest.json`, Kafka 4.1, and 3.9 for versions 0 to 2; the record batch of `DefaultRecordBatch`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import (
    MAX_ELEMENTS,
    TOPIC_ID_BYTES,
    ElementList,
    Encoding,
    TopicId,
    element_list,
    with_elements,
)
from kafka_quotas.wire.codec.skip import (
    Buffer,
    Layout,
    TruncatedError,
    compact_string,
    read_int16,
    read_int32,
    skip,
    string,
)
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RequestHeader

TRANSACTIONAL_ID_SINCE: Final = 3
_API: Final = API_TABLE[ApiKey.PRODUCE]
FLEXIBLE_SINCE: Final = _API.flexible_since


def acks(buffer: Buffer, header: RequestHeader) -> int | None:
    """Return the requested acknowledgements, or None if more bytes are needed.

    They are 0 for none, 1 for the leader's, -1 for all.

    Raises:
        ProtocolError: The request ends before the field.
    """
    frame_end = header.frame_end
    end = min(len(buffer), frame_end)
    offset = header.end
    try:
        # The transactional id comes before the acknowledgements (KIP-98).
        if header.api_version >= TRANSACTIONAL_ID_SINCE:
            text = compact_string if header.api_version >= FLEXIBLE_SINCE else string
            offset = text(buffer, offset, end)
        return read_int16(buffer, offset, end)
    except TruncatedError:
        # The bytes at hand end here, not the request.
        if end < frame_end:
            return None
        raise


TOPIC_ID_SINCE: Final = 13

ProducedTopic: TypeAlias = str | TopicId
"""What a Produce names a topic by."""
PartitionKey: TypeAlias = tuple[ProducedTopic, int]
"""A topic and the number of a partition of it."""

_MAGIC_AT: Final = 16
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43


class Sequenced(NamedTuple):
    """The producer and sequence number of a batch."""

    producer_id: int
    epoch: int
    first: int
    """The sequence number of its first record."""


class ProducedPartition(NamedTuple):
    """One partition's data: the size of its records, their producer (None: not idempotent), and its place."""

    partition: int
    size: int
    sequenced: Sequenced | None
    start: int
    end: int


class TopicData(NamedTuple):
    """One topic of a request: its partitions in order, and the places of the list and of the topic."""

    topic: ProducedTopic
    partitions: tuple[ProducedPartition, ...]
    listed: ElementList
    start: int
    end: int


class ProduceData(NamedTuple):
    """The topics of a request in order, and their place."""

    topics: tuple[TopicData, ...]
    listed: ElementList

    @property
    def order(self) -> list[PartitionKey]:
        """Every partition in the request's order."""
        return [(data.topic, partition.partition) for data in self.topics for partition in data.partitions]


def parse_produce(frame: Buffer, header: RequestHeader) -> ProduceData:
    """Return the topics and partitions of a whole Produce request with their places.

    Raises:
        ProtocolError: The frame can't be a Produce request.
    """
    version = header.api_version
    form = _API.encoding(version)
    end = header.frame_end
    # Acknowledgements and the broker's time come before the topics.
    before: Layout = (form.string, 2, 4) if version >= TRANSACTIONAL_ID_SINCE else (2, 4)
    offset = skip(before, frame, header.end, end)
    count, position = form.array_count(frame, offset, end)
    if count > MAX_ELEMENTS:
        raise ProtocolError(f"a Produce names {count} topics where {MAX_ELEMENTS} may be")
    topics: list[TopicData] = []
    # The limit is on the partitions of all topics together, which are what costs time.
    left = MAX_ELEMENTS
    for _ in range(count):
        topics.append(_topic_data(form, version, frame, position, end, at_most=left))
        left -= len(topics[-1].partitions)
        position = topics[-1].end
    listed = ElementList(offset, tuple((topic.start, topic.end) for topic in topics), position)
    return ProduceData(tuple(topics), listed)


def only_topic(buffer: Buffer, header: RequestHeader) -> tuple[ProducedTopic, int] | None:
    """Return the only topic of a Produce and the offset after it, None if the buffer shows none."""
    version, end = header.api_version, min(len(buffer), header.frame_end)
    form = _API.encoding(version)
    before: Layout = (form.string, 2, 4) if version >= TRANSACTIONAL_ID_SINCE else (2, 4)
    try:
        count, offset = form.array_count(buffer, skip(before, buffer, header.end, end), end)
        if count != 1:
            return None
        topic, offset = topic_key(form, version, buffer, offset, end)
    except ProtocolError:
        return None
    return None if offset > end else (topic, offset)


def without_partitions(
    frame: Buffer, header: RequestHeader, data: ProduceData, is_cut: Callable[[PartitionKey], bool]
) -> bytes | None:
    """Return the request without the cut partitions, or None if none is left."""
    form = _API.encoding(header.api_version)
    elements: list[Buffer] = []
    for topic in data.topics:
        kept = [part for part in topic.partitions if not is_cut((topic.topic, part.partition))]
        if len(kept) == len(topic.partitions):
            elements.append(frame[topic.start : topic.end])
        elif kept:
            before, after = frame[topic.start : topic.listed.start], frame[topic.listed.end : topic.end]
            pieces = [frame[part.start : part.end] for part in kept]
            elements.append(b"".join((before, form.encoded_count(len(kept)), *pieces, after)))
    return with_elements(form, frame, data.listed, elements) if elements else None


def _topic_data(form: Encoding, version: int, frame: Buffer, start: int, end: int, *, at_most: int) -> TopicData:
    """Return the topic at an offset, with at most `at_most` partitions."""
    topic, offset = topic_key(form, version, frame, start, end)
    listed = element_list(form, (4, form.bytes_field, *form.tags), frame, offset, end, at_most=at_most)
    partitions = tuple(_partition(form, frame, at, after) for at, after in listed.spans)
    return TopicData(topic, partitions, listed, start, skip(form.tags, frame, listed.end, end))


def _partition(form: Encoding, frame: Buffer, start: int, end: int) -> ProducedPartition:
    records, records_end = form.bytes_span(frame, start + 4, end)
    size = max(records_end - records, 0)
    return ProducedPartition(read_int32(frame, start, end), size, _sequenced(frame, records, size), start, end)


def _sequenced(frame: Buffer, records: int, size: int) -> Sequenced | None:
    """Return the producer and sequence number of the first batch of some records, or None."""
    # Message formats before magic 2 have no producer id (KIP-98). Idempotent producers send one batch per partition.
    if size < _PRODUCER_AT + _PRODUCER.size or frame[records + _MAGIC_AT] < 2:
        return None
    producer_id, epoch, first = _PRODUCER.unpack_from(frame, records + _PRODUCER_AT)
    # A producer that is not idempotent sends the id -1.
    return Sequenced(producer_id, epoch, first) if producer_id >= 0 else None


def topic_layout(form: Encoding, version: int) -> Layout:
    """Return the layout of a topic's name or id."""
    return (TOPIC_ID_BYTES,) if version >= TOPIC_ID_SINCE else (form.string,)


def topic_key(form: Encoding, version: int, frame: Buffer, start: int, end: int) -> tuple[ProducedTopic, int]:
    """Return a topic's name or id, and the offset after it."""
    # Ids took the place of names (KIP-516).
    if version >= TOPIC_ID_SINCE:
        return bytes(frame[start : start + TOPIC_ID_BYTES]), start + TOPIC_ID_BYTES
    name, offset = form.text(frame, start, end)
    if name is None:
        raise ProtocolError("a topic of a Produce has no name")
    return name, offset
