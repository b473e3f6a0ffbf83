"""Metadata requests and responses: the topics they name, and those that the client shall see.

Up to version 3 a broker that creates topics on first use creates every requested topic. From version 4 on the request
has a flag for it. A response has the topics' ids, their partition counts, and the brokers that lead some partitions.

**Source:** `MetadataRequest.json` and `MetadataResponse.json`, Kafka 4.1, and 3.9 for older versions; KIP-4
(allow_auto_topic_creation), KIP-516 (topic ids).
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import (
    MAX_ELEMENTS,
    NO_TOPIC_ID,
    TOPIC_ID_BYTES,
    ElementList,
    Encoding,
    TopicId,
    element_list,
    with_elements,
)
from kafka_quotas.wire.codec.skip import Buffer, Layout, read_int16, read_int32, read_unsigned_varint, skip
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD_BYTES, RequestHeader, whole_response_body

NULL_IS_ALL_SINCE: Final = 1
AUTO_CREATION_SINCE: Final = 4
TOPIC_ID_SINCE: Final = 10
_BROKER_COUNT: Final = Struct(">i")


class ParsedMetadataRequest(NamedTuple):
    """The topics that a Metadata request names, and whether the broker may create them."""

    names: tuple[str, ...] | None
    """The names in order; None: all topics."""
    listed: ElementList
    may_create: bool
    auto_creation_at: int | None
    """The offset of the flag; None in versions without it."""


def parse_metadata_request(frame: Buffer, header: RequestHeader) -> ParsedMetadataRequest:
    """Return the content of a whole Metadata request, with only the names of topics that have one.

    Raises:
        ProtocolError: The frame can't be a Metadata request.
    """
    version = header.api_version
    form = API_TABLE[ApiKey.METADATA].encoding(version)
    end = header.frame_end
    id_bytes = (TOPIC_ID_BYTES,) if version >= TOPIC_ID_SINCE else ()
    listed = element_list(form, (*id_bytes, form.string, *form.tags), frame, header.end, end, at_most=MAX_ELEMENTS)
    names: tuple[str, ...] | None = None
    if not _is_all(form, frame, listed, version):
        found = (form.text(frame, start + sum(id_bytes), after)[0] for start, after in listed.spans)
        names = tuple(name for name in found if name is not None)
        # Only versions with topic ids allow a null name (KIP-516).
        if len(names) < len(listed.spans) and not id_bytes:
            raise ProtocolError("a topic of a Metadata request has no name")
    # Older versions have no flag, and the broker may create any topic that they name (KIP-4).
    if version < AUTO_CREATION_SINCE:
        return ParsedMetadataRequest(names, listed, True, None)  # noqa: FBT003 - a tuple's field
    skip((1,), frame, listed.end, end)
    return ParsedMetadataRequest(names, listed, bool(frame[listed.end]), listed.end)


def has_brokers(frame: Buffer) -> bool:
    """Return whether a response of version 0 to 2 names a broker, which an error response does not."""
    # The brokers come first in these versions: the throttle time is from version 3 on.
    offset = RESPONSE_HEAD_BYTES
    return len(frame) >= offset + _BROKER_COUNT.size and _BROKER_COUNT.unpack_from(frame, offset)[0] > 0


def _is_all(form: Encoding, frame: Buffer, listed: ElementList, version: int) -> bool:
    # An empty list means all topics in version 0, and none in later versions.
    if version < NULL_IS_ALL_SINCE:
        return not listed.spans
    if form.is_compact:
        return read_unsigned_varint(frame, listed.start, listed.end)[0] == 0
    return read_int32(frame, listed.start, listed.end) < 0


RACK_SINCE: Final = 1
IS_INTERNAL_SINCE: Final = 1
CONTROLLER_SINCE: Final = 1
CLUSTER_ID_SINCE: Final = 2
THROTTLE_SINCE: Final = 3
OFFLINE_REPLICAS_SINCE: Final = 5
LEADER_EPOCH_SINCE: Final = 7
OPERATIONS_SINCE: Final = 8
_NO_OPERATIONS: Final = (-(2**31)).to_bytes(4, "big", signed=True)


class KnownTopic(NamedTuple):
    """One topic of a Metadata response."""

    error_code: int
    name: str | None
    """The name; None for a requested id without a topic."""
    topic_id: TopicId | None
    partitions: int
    leaders: frozenset[int]
    """The node ids of the brokers that lead some of its partitions."""
    start: int
    """The offset of the topic in the frame."""
    end: int


def known_topics(api_version: int, frame: Buffer) -> tuple[KnownTopic, ...]:
    """Return the topics of a whole Metadata response.

    Raises:
        ProtocolError: The frame can't be a Metadata response.
    """
    return tuple(iter_topics(api_version, frame))


def iter_topics(api_version: int, frame: Buffer) -> Iterator[KnownTopic]:
    """Yield the topics of a whole Metadata response, each read when it is asked for.

    Raises:
        ProtocolError: The frame can't be a Metadata response.
    """
    form = API_TABLE[ApiKey.METADATA].encoding(api_version)
    partition, end = _partition(form, api_version), len(frame)
    count, start = form.array_count(frame, _topics_offset(form, api_version, frame), end)
    for _ in range(count):
        topic = _topic(form, api_version, partition, frame, start)
        yield topic
        start = topic.end


def with_topics(api_version: int, frame: Buffer, order: Sequence[str], absent: Mapping[str, int]) -> bytes:
    """Return the response with only the topics of these names, in this order.

    `absent` has the error codes of topics to report as absent. A topic that is in neither is left out.
    """
    form = API_TABLE[ApiKey.METADATA].encoding(api_version)
    listed = _listed(form, api_version, frame)
    by_name = {topic.name: frame[topic.start : topic.end] for topic in iter_topics(api_version, frame)}
    elements: list[Buffer] = []
    # A topic that is named twice has one result, as a broker gives it (`KafkaApis.handleTopicMetadataRequest`).
    for name in dict.fromkeys(order):
        if name in absent:
            elements.append(_absent(form, api_version, name, absent[name]))
        elif name in by_name:
            elements.append(by_name[name])
    return with_elements(form, frame, listed, elements)


def _listed(form: Encoding, version: int, frame: Buffer) -> ElementList:
    return element_list(form, _element(form, version), frame, _topics_offset(form, version, frame), len(frame))


def _topics_offset(form: Encoding, version: int, frame: Buffer) -> int:
    offset = whole_response_body(ApiKey.METADATA, version, frame)
    throttle: Layout = (4,) if version >= THROTTLE_SINCE else ()
    rack: Layout = (form.string,) if version >= RACK_SINCE else ()
    brokers = form.structs(4, form.string, 4, *rack)
    cluster_id: Layout = (form.string,) if version >= CLUSTER_ID_SINCE else ()
    controller: Layout = (4,) if version >= CONTROLLER_SINCE else ()
    return skip((*throttle, brokers, *cluster_id, *controller), frame, offset, len(frame))


def _element(form: Encoding, version: int) -> Layout:
    topic_id: Layout = (TOPIC_ID_BYTES,) if version >= TOPIC_ID_SINCE else ()
    is_internal: Layout = (1,) if version >= IS_INTERNAL_SINCE else ()
    operations: Layout = (4,) if version >= OPERATIONS_SINCE else ()
    return (2, form.string, *topic_id, *is_internal, form.array(*_partition(form, version)), *operations, *form.tags)


def _partition(form: Encoding, version: int) -> Layout:
    """Return the layout of a partition, which starts with its error code, its number and its leader."""
    epoch: Layout = (4,) if version >= LEADER_EPOCH_SINCE else ()
    offline: Layout = (form.array(4),) if version >= OFFLINE_REPLICAS_SINCE else ()
    return (2, 4, 4, *epoch, form.array(4), form.array(4), *offline, *form.tags)


def _topic(form: Encoding, version: int, partition: Layout, frame: Buffer, start: int) -> KnownTopic:
    """Return the topic at an offset, whose partitions have a layout."""
    end = len(frame)
    name, offset = form.text(frame, start + 2, end)
    topic_id: TopicId | None = None
    if version >= TOPIC_ID_SINCE:
        found = bytes(frame[offset : offset + TOPIC_ID_BYTES])
        topic_id = None if found == NO_TOPIC_ID else found
        offset += TOPIC_ID_BYTES
    if version >= IS_INTERNAL_SINCE:
        offset += 1
    partitions = element_list(form, partition, frame, offset, end)
    # A partition without a leader has -1 for it.
    leaders = frozenset([read_int32(frame, place + 6, end) for place, _ in partitions.spans])
    operations: Layout = (4,) if version >= OPERATIONS_SINCE else ()
    after = skip((*operations, *form.tags), frame, partitions.end, end)
    error_code = read_int16(frame, start, end)
    return KnownTopic(error_code, name, topic_id, len(partitions.spans), leaders - {-1}, start, after)


def _absent(form: Encoding, version: int, name: str, error_code: int) -> bytes:
    pieces = [error_code.to_bytes(2, "big"), form.encoded_text(name)]
    if version >= TOPIC_ID_SINCE:
        pieces.append(NO_TOPIC_ID)
    if version >= IS_INTERNAL_SINCE:
        pieces.append(b"\0")
    pieces.append(form.encoded_count(0))
    # The operations were not asked for, which has a value of its own (KIP-430).
    if version >= OPERATIONS_SINCE:
        pieces.append(_NO_OPERATIONS)
    return b"".join((*pieces, form.no_tags))
