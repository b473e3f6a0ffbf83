"""Produce: the acknowledgements that a request wants, its partitions, and the results of refused ones in a response.

A request with `acks=0` gets no response, which matters to any code that pairs responses with requests. Topics are
identified by name, from version 13 on by id. What isn't refused is copied unchanged, including unknown tagged fields.

**Source:** KIP-98 (transactional id from version 3), KIP-482 (compact from version 9), KIP-516 (topic ids), KIP-467
(record errors); `ProduceRequest.json`, `ProduceResponse.json`, Kafka 4.1, and 3.9 for versions 0 to 2; the record batch
of `DefaultRecordBatch`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import (
    MAX_ELEMENTS,
    TOPIC_ID_BYTES,
    ElementList,
    Encoding,
    TopicId,
    element_list,
    fields_of,
    in_order,
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
from kafka_quotas.wire.protocol.header import RequestHeader, response_frame, whole_response_body

TRANSACTIONAL_ID_SINCE: Final = 3
TOPIC_ID_SINCE: Final = 13
APPEND_TIME_SINCE: Final = 2
LOG_START_SINCE: Final = 5
ERRORS_SINCE: Final = 8
_API: Final = API_TABLE[ApiKey.PRODUCE]
FLEXIBLE_SINCE: Final = _API.flexible_since

ProducedTopic: TypeAlias = str | TopicId
PartitionKey: TypeAlias = tuple[ProducedTopic, int]

_MAGIC_AT: Final = 16
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_RESULT_HEAD: Final = Struct(">ih").unpack_from
"""A result begins with the partition's number and its error code."""
_NO_OFFSET: Final = (-1).to_bytes(8, "big", signed=True)


def acks_start(buffer: Buffer, header: RequestHeader, end: int) -> int:
    """Return the offset of the acknowledgements, which the transactional id precedes (KIP-98)."""
    if header.api_version < TRANSACTIONAL_ID_SINCE:
        return header.end
    return (compact_string if header.api_version >= FLEXIBLE_SINCE else string)(buffer, header.end, end)


def acks(buffer: Buffer, header: RequestHeader) -> int | None:
    """Return the requested acknowledgements (0, 1 or -1), or None if more bytes are needed."""
    end, offset = min(len(buffer), header.frame_end), header.end
    try:
        if header.api_version >= TRANSACTIONAL_ID_SINCE:  # as in `acks_start`, without its call per request
            offset = (compact_string if header.api_version >= FLEXIBLE_SINCE else string)(buffer, offset, end)
        return read_int16(buffer, offset, end)
    except TruncatedError:
        # The bytes at hand end here, not the request.
        if end < header.frame_end:
            return None
        raise


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


class PartitionResult(NamedTuple):
    """One partition's result, and its place in the response."""

    topic: ProducedTopic
    partition: int
    error_code: int
    start: int
    end: int


_P = TypeVar("_P", ProducedPartition, PartitionResult)


class TopicData(NamedTuple, Generic[_P]):
    """One topic of a message: its partitions in order, and the places of the list and of the topic."""

    topic: ProducedTopic
    partitions: tuple[_P, ...]
    listed: ElementList
    start: int
    end: int


class ProduceData(NamedTuple):
    """The topics of a request in order, and their place."""

    topics: tuple[TopicData[ProducedPartition], ...]
    listed: ElementList

    @property
    def order(self) -> list[PartitionKey]:
        """Every partition in the request's order."""
        return [(data.topic, partition.partition) for data in self.topics for partition in data.partitions]


def parse_produce(frame: Buffer, header: RequestHeader) -> ProduceData:
    """Return the topics and partitions of a whole Produce request with their places."""
    form, end = _API.encoding(header.api_version), header.frame_end
    count, first, offset = _topic_count(form, frame, header, end)
    if count > MAX_ELEMENTS:
        raise ProtocolError(f"a Produce names {count} topics where {MAX_ELEMENTS} may be")

    def partition(_: ProducedTopic, start: int, after: int) -> ProducedPartition:
        return _partition(form, frame, start, after)

    element: Layout = (4, form.bytes_field, *form.tags)
    topics = tuple(
        _topics(header.api_version, frame, (count, first), element, partition, end=end, at_most=MAX_ELEMENTS)
    )
    spans = tuple((topic.start, topic.end) for topic in topics)
    return ProduceData(topics, ElementList(offset, spans, spans[-1][1] if spans else first))


def _topics(
    version: int,
    frame: Buffer,
    counted: tuple[int, int],
    element: Layout,
    read: Callable[[ProducedTopic, int, int], _P],
    *,
    end: int,
    at_most: int | None = None,
) -> Iterator[TopicData[_P]]:
    form, (count, start) = _API.encoding(version), counted
    for _ in range(count):
        topic, offset = _topic_key(form, version, frame, start, end)
        listed = element_list(form, element, frame, offset, end, at_most=at_most)
        partitions = tuple(read(topic, at, after) for at, after in listed.spans)
        after_topic = skip(form.tags, frame, listed.end, end)
        yield TopicData(topic, partitions, listed, start, after_topic)
        start = after_topic
        # The limit is on the partitions of all topics together, which are what costs time.
        at_most = None if at_most is None else at_most - len(partitions)


def only_topic(buffer: Buffer, header: RequestHeader) -> tuple[ProducedTopic, int] | None:
    """Return the only topic of a Produce and the offset after it, None if the buffer shows none."""
    version, end = header.api_version, min(len(buffer), header.frame_end)
    form = _API.encoding(version)
    try:
        count, offset, _ = _topic_count(form, buffer, header, end)
        if count != 1:
            return None
        topic, offset = _topic_key(form, version, buffer, offset, end)
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


def _topic_count(form: Encoding, frame: Buffer, header: RequestHeader, end: int) -> tuple[int, int, int]:
    # Acknowledgements and the broker's time come before the topics.
    before: Layout = fields_of(header.api_version, (TRANSACTIONAL_ID_SINCE, form.string), (0, 6))
    offset = skip(before, frame, header.end, end)
    return *form.array_count(frame, offset, end), offset


def _partition(form: Encoding, frame: Buffer, start: int, end: int) -> ProducedPartition:
    records, records_end = form.bytes_span(frame, start + 4, end)
    size, sequenced = max(records_end - records, 0), None
    # Message formats before magic 2 have no producer id (KIP-98). Idempotent producers send one batch per partition.
    if size >= _PRODUCER_AT + _PRODUCER.size and frame[records + _MAGIC_AT] >= 2:
        producer_id, epoch, first = _PRODUCER.unpack_from(frame, records + _PRODUCER_AT)
        # A producer that is not idempotent sends the id -1.
        sequenced = Sequenced(producer_id, epoch, first) if producer_id >= 0 else None
    return ProducedPartition(read_int32(frame, start, end), size, sequenced, start, end)


def _topic_key(form: Encoding, version: int, frame: Buffer, start: int, end: int) -> tuple[ProducedTopic, int]:
    # Ids took the place of names (KIP-516).
    if version >= TOPIC_ID_SINCE:
        return bytes(frame[start : start + TOPIC_ID_BYTES]), start + TOPIC_ID_BYTES
    name, offset = form.text(frame, start, end)
    if name is None:
        raise ProtocolError("a topic of a Produce has no name")
    return name, offset


def partition_results(api_version: int, frame: Buffer) -> Iterator[PartitionResult]:
    """Yield the results of a whole Produce response in its order, each topic read when it is asked for."""
    for topic in _topic_results(api_version, frame):
        yield from topic.partitions


def refused_partition(api_version: int, partition: int, *, error_code: int, message: str) -> bytes:
    """Return the result of a refused partition, with the message if the version has the field."""
    form = _API.encoding(api_version)
    # Offset, append time and start of the log are unknown. The message is the partition's, not a record's (KIP-467).
    fields = fields_of(
        api_version,
        (0, partition.to_bytes(4, "big", signed=True)),
        (0, error_code.to_bytes(2, "big")),
        (0, _NO_OFFSET),
        (APPEND_TIME_SINCE, _NO_OFFSET),
        (LOG_START_SINCE, _NO_OFFSET),
        (ERRORS_SINCE, form.encoded_count(0)),
        (ERRORS_SINCE, form.encoded_text(message)),
        (0, form.no_tags),
    )
    return b"".join(fields)


def with_refused_partitions(
    api_version: int, frame: Buffer, order: Sequence[PartitionKey], refused: Mapping[PartitionKey, bytes]
) -> bytes:
    """Return the response with the refused partitions' results added, in the order of the request.

    Topics of the broker that the request does not name come last.
    """
    form, offset = _API.encoding(api_version), whole_response_body(ApiKey.PRODUCE, api_version, frame)
    topics = tuple(_topic_results(api_version, frame))
    end = topics[-1].end if topics else form.array_count(frame, offset, len(frame))[1]
    theirs = {topic.topic: topic for topic in topics if topic.partitions}
    elements: list[Buffer] = []
    for topic, partitions in _grouped(order).items():
        elements.append(_merged(form, frame, (topic, partitions), theirs.pop(topic, None), refused))
    elements += [frame[topic.start : topic.end] for topic in theirs.values()]
    return with_elements(form, frame, ElementList(offset, (), end), elements)


def all_refused_partitions(
    api_version: int, correlation_id: int, order: Sequence[PartitionKey], refused: Mapping[PartitionKey, bytes]
) -> bytes:
    """Return a whole response of refused partitions, with a throttle time of 0."""
    form = _API.encoding(api_version)
    elements = [_merged(form, b"", group, None, refused) for group in _grouped(order).items()]
    # The throttle time is the last field (KIP-13): the daemon raises it in place, as in the broker's responses.
    after = fields_of(api_version, (1, bytes(4)), (0, form.no_tags))
    count = form.encoded_count(len(elements))
    return response_frame(ApiKey.PRODUCE, api_version, correlation_id, count, *elements, *after)


def _grouped(order: Sequence[PartitionKey]) -> dict[ProducedTopic, list[int]]:
    topics: dict[ProducedTopic, list[int]] = {}
    for topic, partition in order:
        topics.setdefault(topic, []).append(partition)
    return topics


def _merged(
    form: Encoding,
    frame: Buffer,
    group: tuple[ProducedTopic, list[int]],
    answered: TopicData[PartitionResult] | None,
    refused: Mapping[PartitionKey, bytes],
) -> bytes:
    topic, partitions = group
    results = () if answered is None else answered.partitions
    theirs = {(topic, result.partition): frame[result.start : result.end] for result in results}
    merged = in_order(((topic, partition) for partition in partitions), refused, theirs)
    # If the broker was not asked about this topic, there is nothing of it to copy.
    before: Buffer = topic if isinstance(topic, bytes) else form.encoded_text(topic)
    after: Buffer = form.no_tags
    if answered is not None:
        before, after = frame[answered.start : answered.listed.start], frame[answered.listed.end : answered.end]
    return b"".join((before, form.encoded_count(len(merged)), *merged, after))


def _topic_results(api_version: int, frame: Buffer) -> Iterator[TopicData[PartitionResult]]:
    form, end = _API.encoding(api_version), len(frame)
    # Number and error, then offset, append time and start of the log, then the errors of records and a message.
    fields: Layout = fields_of(
        api_version,
        (0, 6 + 8),
        (APPEND_TIME_SINCE, 8),
        (LOG_START_SINCE, 8),
        (ERRORS_SINCE, form.structs(4, form.string)),
        (ERRORS_SINCE, form.string),
    )

    def result(topic: ProducedTopic, start: int, after: int) -> PartitionResult:
        number, error_code = _RESULT_HEAD(frame, start)
        return PartitionResult(topic, number, error_code, start, after)

    counted = form.array_count(frame, whole_response_body(ApiKey.PRODUCE, api_version, frame), end)
    return _topics(api_version, frame, counted, (*fields, *form.tags), result, end=end)
