"""The results of a Produce response by partition, and the insertion of those of refused partitions.

Topics are identified by name, from version 13 on by id. The broker's results are copied unchanged, including unknown
tagged fields.

**Source:** `ProduceResponse.json`, Kafka 4.1, and 3.9 for versions 0 to 2; KIP-467 (record errors).
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import ElementList, Encoding, element_list, framed, with_elements
from kafka_quotas.wire.codec.skip import Buffer, Layout, skip
from kafka_quotas.wire.passing.produce_request import PartitionKey, ProducedTopic, topic_key
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import has_header_tags, whole_response_body

THROTTLE_SINCE: Final = 1
APPEND_TIME_SINCE: Final = 2
LOG_START_SINCE: Final = 5
ERRORS_SINCE: Final = 8
_API: Final = API_TABLE[ApiKey.PRODUCE]
_NO_OFFSET: Final = (-1).to_bytes(8, "big", signed=True)


_HEAD: Final = Struct(">ih").unpack_from
"""A result begins with the partition's number and its error code."""


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
    """Yield the results of a whole Produce response in its order, each topic read when it is asked for.

    Raises:
        ProtocolError: The frame can't be a Produce response.
    """
    form = _API.encoding(api_version)
    offset, layout = whole_response_body(ApiKey.PRODUCE, api_version, frame), _result_layout(form, api_version)
    count, offset = form.array_count(frame, offset, len(frame))
    for _ in range(count):
        topic = _results(form, api_version, layout, frame, offset)
        yield from topic.results
        offset = topic.end


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
    form = _API.encoding(api_version)
    listed, topics = _parsed(form, api_version, frame)
    theirs = {topic.results[0].topic: topic for topic in topics if topic.results}
    elements: list[Buffer] = []
    for topic, partitions in _grouped(order).items():
        elements.append(_merged(form, frame, (topic, partitions), theirs.pop(topic, None), refused))
    elements += [frame[topic.start : topic.end] for topic in theirs.values()]
    return with_elements(form, frame, listed, elements)


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


def _parsed(form: Encoding, version: int, frame: Buffer) -> tuple[ElementList, list[_TopicResults]]:
    offset, layout = whole_response_body(ApiKey.PRODUCE, version, frame), _result_layout(form, version)
    count, position = form.array_count(frame, offset, len(frame))
    topics: list[_TopicResults] = []
    for _ in range(count):
        topics.append(_results(form, version, layout, frame, position))
        position = topics[-1].end
    return ElementList(offset, tuple((topic.start, topic.end) for topic in topics), position), topics


def _result_layout(form: Encoding, version: int) -> Layout:
    """Return the layout of a partition's result, which starts with its number and its error code."""
    times = 8 * (1 + (version >= APPEND_TIME_SINCE) + (version >= LOG_START_SINCE))
    errors: Layout = (form.structs(4, form.string), form.string) if version >= ERRORS_SINCE else ()
    return (4, 2, times, *errors, *form.tags)


def _results(form: Encoding, version: int, layout: Layout, frame: Buffer, start: int) -> _TopicResults:
    """Return the results of the topic at an offset, whose partitions have a layout."""
    end = len(frame)
    topic, offset = topic_key(form, version, frame, start, end)
    listed = element_list(form, layout, frame, offset, end)
    results: list[PartitionResult] = []
    for at, after in listed.spans:
        partition, error_code = _HEAD(frame, at)
        results.append(PartitionResult(topic, partition, error_code, at, after))
    return _TopicResults(tuple(results), listed, start, skip(form.tags, frame, listed.end, end))
