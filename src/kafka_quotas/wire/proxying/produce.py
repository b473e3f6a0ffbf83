"""Produce: the acknowledgements that a request wants, its partitions, and the results of refused ones in a response.

A request with `acks=0` gets no response, which matters to any code that pairs responses with requests. Topics are
identified by name, from version 13 on by id. What isn't refused is copied unchanged, including unknown tagged fields.

**Source:** KIP-98 (transactional id from version 3), KIP-482 (compact from version 9), KIP-516 (topic ids), KIP-467
(record errors); `ProduceRequest.json`, `ProduceResponse.json`, Kafka 4.1, and 3.9 for versions 0 to 2; the record batch
of `DefaultRecordBatch`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    framed,
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
from kafka_quotas.wire.protocol.header import RequestHeader, has_header_tags, whole_response_body

TRANSACTIONAL_ID_SINCE: Final = 3
TOPIC_ID_SINCE: Final = 13
THROTTLE_SINCE: Final = 1
APPEND_TIME_SINCE: Final = 2
LOG_START_SINCE: Final = 5
ERRORS_SINCE: Final = 8
_API: Final = API_TABLE[ApiKey.PRODUCE]
FLEXIBLE_SINCE: Final = _API.flexible_since

ProducedTopic: TypeAlias = str | TopicId
"""The name or id by which a Produce names a topic."""
PartitionKey: TypeAlias = tuple[ProducedTopic, int]
"""A topic and the number of a partition of it."""

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
    """Return the topics and partitions of a whole Produce request with their places."""
    version, form, end = header.api_version, _API.encoding(header.api_version), header.frame_end
    count, position, offset = _topic_count(form, frame, header, end)
    if count > MAX_ELEMENTS:
        raise ProtocolError(f"a Produce names {count} topics where {MAX_ELEMENTS} may be")
    topics: list[TopicData] = []
    # The limit is on the partitions of all topics together, which are what costs time.
    left = MAX_ELEMENTS
    for _ in range(count):
        start = position
        topic, position = _topic_key(form, version, frame, start, end)
        listed = element_list(form, (4, form.bytes_field, *form.tags), frame, position, end, at_most=left)
        partitions = tuple(_partition(form, frame, at, after) for at, after in listed.spans)
        position = skip(form.tags, frame, listed.end, end)
        topics.append(TopicData(topic, partitions, listed, start, position))
        left -= len(partitions)
    return ProduceData(
        tuple(topics), ElementList(offset, tuple((topic.start, topic.end) for topic in topics), position)
    )


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
    """Return the number of topics, the offset of the first one and that of the number."""
    # Acknowledgements and the broker's time come before the topics.
    before: Layout = (form.string, 2, 4) if header.api_version >= TRANSACTIONAL_ID_SINCE else (2, 4)
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
    """Return a topic's name or id, and the offset after it."""
    # Ids took the place of names (KIP-516).
    if version >= TOPIC_ID_SINCE:
        return bytes(frame[start : start + TOPIC_ID_BYTES]), start + TOPIC_ID_BYTES
    name, offset = form.text(frame, start, end)
    if name is None:
        raise ProtocolError("a topic of a Produce has no name")
    return name, offset


class PartitionResult(NamedTuple):
    """One partition's result, and its place in the response."""

    topic: ProducedTopic
    partition: int
    error_code: int
    start: int
    end: int


class _TopicResults(NamedTuple):
    """One topic of a response: its partitions in order, and the places of the list and of the topic."""

    results: tuple[PartitionResult, ...]
    listed: ElementList
    start: int
    end: int


def partition_results(api_version: int, frame: Buffer) -> Iterator[PartitionResult]:
    """Yield the results of a whole Produce response in its order, each topic read when it is asked for."""
    for topic in _topic_results(api_version, frame):
        yield from topic.results


def refused_partition(api_version: int, partition: int, *, error_code: int, message: str) -> bytes:
    """Return the result of a refused partition, with the message if the version has the field."""
    form = _API.encoding(api_version)
    pieces = [partition.to_bytes(4, "big", signed=True), error_code.to_bytes(2, "big"), _NO_OFFSET]
    # Append time and start of the log, both unknown as well.
    pieces += [_NO_OFFSET] * ((api_version >= APPEND_TIME_SINCE) + (api_version >= LOG_START_SINCE))
    # No errors of single records: the message is that of the whole partition (KIP-467).
    if api_version >= ERRORS_SINCE:
        pieces += [form.encoded_count(0), form.encoded_text(message)]
    return b"".join((*pieces, form.no_tags))


def with_refused_partitions(
    api_version: int, frame: Buffer, order: Sequence[PartitionKey], refused: Mapping[PartitionKey, bytes]
) -> bytes:
    """Return the response with the refused partitions' results added, in the order of the request.

    Topics of the broker that the request does not name come last.
    """
    form, offset = _API.encoding(api_version), whole_response_body(ApiKey.PRODUCE, api_version, frame)
    topics = tuple(_topic_results(api_version, frame))
    end = topics[-1].end if topics else form.array_count(frame, offset, len(frame))[1]
    theirs = {topic.results[0].topic: topic for topic in topics if topic.results}
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
    header = correlation_id.to_bytes(4, "big", signed=True)
    # Flexible versions have a tag section at the end of the header as well (KIP-482).
    header += b"\0" if has_header_tags(ApiKey.PRODUCE, api_version) else b""
    # The throttle time is the last field (KIP-13): the daemon raises it in place, as in the broker's responses.
    throttle = bytes(4) if api_version >= THROTTLE_SINCE else b""
    return framed(b"".join((header, form.encoded_count(len(elements)), *elements, throttle, form.no_tags)))


def _grouped(order: Sequence[PartitionKey]) -> dict[ProducedTopic, list[int]]:
    topics: dict[ProducedTopic, list[int]] = {}
    for topic, partition in order:
        topics.setdefault(topic, []).append(partition)
    return topics


def _merged(
    form: Encoding,
    frame: Buffer,
    group: tuple[ProducedTopic, list[int]],
    answered: _TopicResults | None,
    refused: Mapping[PartitionKey, bytes],
) -> bytes:
    """Return one topic's results in the request's order: the refused ones and the broker's."""
    topic, partitions = group
    theirs = {} if answered is None else {result.partition: result for result in answered.results}
    results: list[Buffer] = []
    for partition in dict.fromkeys(partitions):
        if (topic, partition) in refused:
            results.append(refused[topic, partition])
        elif partition in theirs:
            results.append(frame[theirs[partition].start : theirs[partition].end])
    # The broker was not asked about this topic, so there is nothing of it to copy.
    if answered is None:
        before: Buffer = topic if isinstance(topic, bytes) else form.encoded_text(topic)
        after: Buffer = form.no_tags
    else:
        before, after = frame[answered.start : answered.listed.start], frame[answered.listed.end : answered.end]
    return b"".join((before, form.encoded_count(len(results)), *results, after))


def _topic_results(api_version: int, frame: Buffer) -> Iterator[_TopicResults]:
    form, end = _API.encoding(api_version), len(frame)
    times = 8 * (1 + (api_version >= APPEND_TIME_SINCE) + (api_version >= LOG_START_SINCE))
    errors: Layout = (form.structs(4, form.string), form.string) if api_version >= ERRORS_SINCE else ()
    layout: Layout = (4, 2, times, *errors, *form.tags)
    count, start = form.array_count(frame, whole_response_body(ApiKey.PRODUCE, api_version, frame), end)
    for _ in range(count):
        topic, offset = _topic_key(form, api_version, frame, start, end)
        listed = element_list(form, layout, frame, offset, end)
        results: list[PartitionResult] = []
        for at, after in listed.spans:
            partition, error_code = _RESULT_HEAD(frame, at)
            results.append(PartitionResult(topic, partition, error_code, at, after))
        topic_end = skip(form.tags, frame, listed.end, end)
        yield _TopicResults(tuple(results), listed, start, topic_end)
        start = topic_end
