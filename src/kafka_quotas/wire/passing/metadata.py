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
    Spelling,
    TopicId,
    element_list,
    with_elements,
)
from kafka_quotas.wire.codec.skip import Buffer, Layout, read_int16, read_int32, read_unsigned_varint, walk
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.request_header import RequestHeader
from kafka_quotas.wire.protocol.response_header import RESPONSE_HEAD_BYTES, whole_response_body

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
    id_bytes: Layout = (TOPIC_ID_BYTES,) if version >= TOPIC_ID_SINCE else ()
    listed = element_list(form, (*id_bytes, form.string, *form.tags), frame, header.end, end, at_most=MAX_ELEMENTS)
    names: tuple[str, ...] | None = None
    if not _is_all(form, frame, listed, version):
        found = (form.text(frame, start + _fixed_bytes(id_bytes), behind)[0] for start, behind in listed.spans)
        names = tuple(name for name in found if name is not None)
        # Only versions with topic ids allow a null name.
        if len(names) < len(listed.spans) and not id_bytes:
            raise ProtocolError("a topic of a Metadata request has no name")
    # Older versions have no flag, and the broker may create any topic that they name.
    if version < AUTO_CREATION_SINCE:
        return ParsedMetadataRequest(names, listed, True, None)  # noqa: FBT003 - a tuple's field
    walk((1,), frame, listed.end, end)
    return ParsedMetadataRequest(names, listed, bool(frame[listed.end]), listed.end)


def has_brokers(frame: Buffer) -> bool:
    """Return whether a response of version 0 to 2 names a broker, which an error response does not."""
    offset = RESPONSE_HEAD_BYTES
    return len(frame) >= offset + _BROKER_COUNT.size and _BROKER_COUNT.unpack_from(frame, offset)[0] > 0


def _is_all(form: Spelling, frame: Buffer, listed: ElementList, version: int) -> bool:
    """Return whether the request asks for every topic: an empty list in version 0, null later."""
    # An empty list means all topics in version 0, and none in later versions.
    if version < NULL_IS_ALL_SINCE:
        return not listed.spans
    if form.is_compact:
        return read_unsigned_varint(frame, listed.start, listed.end)[0] == 0
    return read_int32(frame, listed.start, listed.end) < 0


def _fixed_bytes(layout: Layout) -> int:
    """Return the size of the fixed fields of a layout."""
    return sum(step for step in layout if isinstance(step, int))


RACK_SINCE: Final = 1
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
    form = API_TABLE[ApiKey.METADATA].encoding(api_version)
    listed = _listed(form, api_version, frame)
    return tuple(_topic(form, api_version, frame, start, end) for start, end in listed.spans)


def iter_topics(api_version: int, frame: Buffer) -> Iterator[KnownTopic]:
    """Yield the topics of a whole Metadata response, each read when it is asked for.

    Raises:
        ProtocolError: The frame can't be a Metadata response.
    """
    form = API_TABLE[ApiKey.METADATA].encoding(api_version)
    element, end = _element(form, api_version), len(frame)
    count, start = form.array_count(frame, _topics_offset(form, api_version, frame), end)
    for _ in range(count):
        after = walk(element, frame, start, end)
        yield _topic(form, api_version, frame, start, after)
        start = after


def with_topics(api_version: int, frame: Buffer, order: Sequence[str], absent: Mapping[str, int]) -> bytes:
    """Return the response with only these topics, in this order.

    A topic that is neither in the response nor in `absent` is left out.

    Args:
        api_version: The version of the request.
        frame: The whole response.
        order: The names of the topics.
        absent: The error codes of topics to report as absent, by name.
    """
    form = API_TABLE[ApiKey.METADATA].encoding(api_version)
    listed = _listed(form, api_version, frame)
    topics = [_topic(form, api_version, frame, start, end) for start, end in listed.spans]
    by_name = {topic.name: frame[topic.start : topic.end] for topic in topics}
    elements: list[Buffer] = []
    for name in dict.fromkeys(order):
        if name in absent:
            elements.append(_absent(form, api_version, name, absent[name]))
        elif name in by_name:
            elements.append(by_name[name])
    return with_elements(form, frame, listed, elements)


def _listed(form: Spelling, version: int, frame: Buffer) -> ElementList:
    return element_list(form, _element(form, version), frame, _topics_offset(form, version, frame), len(frame))


def _topics_offset(form: Spelling, version: int, frame: Buffer) -> int:
    offset = whole_response_body(ApiKey.METADATA, version, frame)
    before: list[Layout] = [(4,)] if version >= THROTTLE_SINCE else []
    rack: Layout = (form.string,) if version >= RACK_SINCE else ()
    before.append((form.array(4, form.string, 4, *rack, *form.tags),))
    if version >= CLUSTER_ID_SINCE:
        before.append((form.string,))
    if version >= CONTROLLER_SINCE:
        before.append((4,))
    return walk(tuple(step for steps in before for step in steps), frame, offset, len(frame))


def _element(form: Spelling, version: int) -> Layout:
    topic_id: Layout = (TOPIC_ID_BYTES,) if version >= TOPIC_ID_SINCE else ()
    is_internal: Layout = (1,) if version >= 1 else ()
    operations: Layout = (4,) if version >= OPERATIONS_SINCE else ()
    partitions = form.array(*_partition(form, version))
    return (2, form.string, *topic_id, *is_internal, partitions, *operations, *form.tags)


def _partition(form: Spelling, version: int) -> Layout:
    """Return the layout of a partition, which starts with its error code, its number and its leader."""
    epoch: Layout = (4,) if version >= LEADER_EPOCH_SINCE else ()
    offline: Layout = (form.array(4),) if version >= OFFLINE_REPLICAS_SINCE else ()
    return (2, 4, 4, *epoch, form.array(4), form.array(4), *offline, *form.tags)


def _topic(form: Spelling, version: int, frame: Buffer, start: int, end: int) -> KnownTopic:
    name, offset = form.text(frame, start + 2, end)
    topic_id: TopicId | None = None
    if version >= TOPIC_ID_SINCE:
        told = bytes(frame[offset : offset + TOPIC_ID_BYTES])
        topic_id = None if told == NO_TOPIC_ID else told
        offset += TOPIC_ID_BYTES
    if version >= 1:
        offset += 1
    partitions = element_list(form, _partition(form, version), frame, offset, end)
    leaders = frozenset(read_int32(frame, place + 6, end) for place, _ in partitions.spans)
    return KnownTopic(read_int16(frame, start, end), name, topic_id, len(partitions.spans), leaders - {-1}, start, end)


def _absent(form: Spelling, version: int, name: str, error_code: int) -> bytes:
    pieces = [error_code.to_bytes(2, "big"), form.encoded_text(name)]
    if version >= TOPIC_ID_SINCE:
        pieces.append(NO_TOPIC_ID)
    if version >= 1:
        pieces.append(b"\0")
    pieces.append(form.encoded_count(0))
    if version >= OPERATIONS_SINCE:
        pieces.append(_NO_OPERATIONS)
    return b"".join((*pieces, form.no_tags))
