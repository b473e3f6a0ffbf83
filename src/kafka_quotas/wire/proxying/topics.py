"""Requests that name topics: Metadata, CreateTopics, CreatePartitions, DeleteTopics, and heartbeats of streams groups.

Up to version 3 of Metadata a broker that creates topics on first use creates every requested topic. From version 4 on
the request has a flag for it. CreateTopics and CreatePartitions name partition counts. DeleteTopics identifies topics
by name or, from version 6 on, by id. What isn't refused is copied unchanged, including unknown tagged fields.

**Source:** the JSON definitions of the messages, Kafka 4.1, and 3.9 for older versions; KIP-4 (the flag for
auto-creation), KIP-195 (validate only), KIP-464 (partitions of -1: the broker's default), KIP-516 (topic ids), KIP-599
(the error of a refused topic); KIP-1071, `InternalTopicManager`, `KafkaApis.handleStreamsGroupHeartbeat`, Kafka 4.3.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import (
    COMPACT,
    MAX_ELEMENTS,
    NO_TOPIC_ID,
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
    Skip,
    compact_array_count,
    compact_string,
    read_int16,
    read_int32,
    read_unsigned_varint,
    skip,
    tags,
)
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD_BYTES, RequestHeader, response_frame, whole_response_body

NULL_IS_ALL_SINCE: Final = 1
AUTO_CREATION_SINCE: Final = 4
TOPIC_ID_SINCE: Final = 10
IS_INTERNAL_SINCE: Final = 1
OPERATIONS_SINCE: Final = 8
_METADATA: Final = API_TABLE[ApiKey.METADATA]
_NO_OPERATIONS: Final = (-(2**31)).to_bytes(4, "big", signed=True)


class ParsedMetadataRequest(NamedTuple):
    """The topics that a Metadata request names, and whether the broker may create them."""

    names: tuple[str, ...] | None
    """The names in order; None: all topics."""
    listed: ElementList
    may_create: bool
    auto_creation_at: int | None
    """The offset of the flag; None in versions without it."""


def parse_metadata_request(frame: Buffer, header: RequestHeader) -> ParsedMetadataRequest:
    """Return the content of a whole Metadata request, with only the names of topics that have one."""
    version, end = header.api_version, header.frame_end
    form = _METADATA.encoding(version)
    id_bytes = fields_of(version, (TOPIC_ID_SINCE, TOPIC_ID_BYTES))
    listed = element_list(form, (*id_bytes, form.string, *form.tags), frame, header.end, end, at_most=MAX_ELEMENTS)
    # An empty list means all topics in version 0, and none in later versions.
    if version < NULL_IS_ALL_SINCE:
        is_all = not listed.spans
    elif form.is_compact:
        is_all = read_unsigned_varint(frame, listed.start, listed.end)[0] == 0
    else:
        is_all = read_int32(frame, listed.start, listed.end) < 0
    names: tuple[str, ...] | None = None
    if not is_all:
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
    start = RESPONSE_HEAD_BYTES
    return len(frame) >= start + 4 and read_int32(frame, start, len(frame)) > 0


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
    end: int


def iter_topics(api_version: int, frame: Buffer) -> Iterator[KnownTopic]:
    """Yield the topics of a whole Metadata response, each read when it is asked for."""
    form, end = _METADATA.encoding(api_version), len(frame)
    numbers: Skip = form.array(4)
    # Error code, number, leader and its epoch, then replicas, those in sync, and those that are offline.
    fields: Layout = fields_of(api_version, (0, 10), (7, 4), (0, numbers), (0, numbers), (5, numbers))
    partition: Layout = (*fields, *form.tags)
    operations: Layout = fields_of(api_version, (OPERATIONS_SINCE, 4))
    count, start = form.array_count(frame, _topics_offset(form, api_version, frame), end)
    for _ in range(count):
        name, offset = form.text(frame, start + 2, end)
        topic_id: TopicId | None = None
        if api_version >= TOPIC_ID_SINCE:
            topic_id = _topic_id(frame, offset)
            offset += TOPIC_ID_BYTES
        partitions = element_list(form, partition, frame, offset + (api_version >= IS_INTERNAL_SINCE), end)
        leaders = frozenset([read_int32(frame, place + 6, end) for place, _ in partitions.spans])
        after = skip((*operations, *form.tags), frame, partitions.end, end)
        # A partition without a leader has -1 for it.
        known = (len(partitions.spans), leaders - {-1}, start, after)
        yield KnownTopic(read_int16(frame, start, end), name, topic_id, *known)
        start = after


def with_topics(api_version: int, frame: Buffer, order: Sequence[str], absent: Mapping[str, int]) -> bytes:
    """Return the response with only the topics of these names, in this order.

    `absent` has the error codes of topics to report as absent. A topic that is in neither is left out.
    """
    form = _METADATA.encoding(api_version)
    offset, topics = _topics_offset(form, api_version, frame), tuple(iter_topics(api_version, frame))
    end = topics[-1].end if topics else form.array_count(frame, offset, len(frame))[1]
    theirs = {topic.name: frame[topic.start : topic.end] for topic in topics if topic.name is not None}
    ours = {name: _absent(form, api_version, name, error_code) for name, error_code in absent.items()}
    # A topic that is named twice has one result, as a broker gives it (`KafkaApis.handleTopicMetadataRequest`).
    return with_elements(form, frame, ElementList(offset, (), end), in_order(order, ours, theirs))


def _topics_offset(form: Encoding, version: int, frame: Buffer) -> int:
    rack: Layout = fields_of(version, (1, form.string))
    brokers = form.structs(4, form.string, 4, *rack)
    # Throttle time, brokers, the cluster's id and its controller.
    before: Layout = fields_of(version, (3, 4), (0, brokers), (2, form.string), (1, 4))
    return skip(before, frame, whole_response_body(ApiKey.METADATA, version, frame), len(frame))


def _absent(form: Encoding, version: int, name: str, error_code: int) -> bytes:
    # The operations were not asked for, which has a value of its own (KIP-430).
    fields = fields_of(
        version,
        (0, error_code.to_bytes(2, "big")),
        (0, form.encoded_text(name)),
        (TOPIC_ID_SINCE, NO_TOPIC_ID),
        (IS_INTERNAL_SINCE, b"\0"),
        (0, form.encoded_count(0)),
        (OPERATIONS_SINCE, _NO_OPERATIONS),
        (0, form.no_tags),
    )
    return b"".join(fields)


def _topic_id(frame: Buffer, offset: int) -> TopicId | None:
    topic_id = bytes(frame[offset : offset + TOPIC_ID_BYTES])
    return None if topic_id == NO_TOPIC_ID else topic_id


TopicKey: TypeAlias = str | TopicId | None
"""The name or id of a topic, or None for neither."""

_VALIDATE_ONLY_SINCE: Final = 1
_DELETE_BY_ID_SINCE: Final = 6


class MutationRequest(NamedTuple):
    """The topics that a request creates, grows or deletes."""

    api_key: int
    keys: tuple[TopicKey, ...]
    """The name or id of each topic, in order."""
    partitions: tuple[int, ...]
    """The partition count of each topic after the request: -1 for the broker's default, 0 for a deleted topic."""
    listed: ElementList
    form: Encoding
    validate_only: bool


def parse_mutation(frame: Buffer, header: RequestHeader) -> MutationRequest:
    """Return the content of a whole CreateTopics, CreatePartitions or DeleteTopics request."""
    api_key, version, end = header.api_key, header.api_version, header.frame_end
    form = API_TABLE[api_key].encoding(version)
    if api_key == ApiKey.CREATE_TOPICS:
        assignments, configs = form.structs(4, form.array(4)), form.structs(form.string, form.string)
        element: Layout = (form.string, 4, 2, assignments, configs, *form.tags)
    elif api_key == ApiKey.CREATE_PARTITIONS:
        element = (form.string, 4, form.structs(form.array(4)), *form.tags)
    else:
        # Names alone are no structures, so they have no tags even in flexible versions.
        element = (form.string, TOPIC_ID_BYTES, *form.tags) if version >= _DELETE_BY_ID_SINCE else (form.string,)
    # Reading a request whole delays all other clients, so its size is bounded.
    listed = element_list(form, element, frame, header.end, end, at_most=MAX_ELEMENTS)
    if api_key == ApiKey.DELETE_TOPICS:
        keys = tuple(_deleted(form, version, frame, start, after) for start, after in listed.spans)
        return MutationRequest(api_key, keys, (0,) * len(keys), listed, form, validate_only=False)
    topics = [_changed(form, api_key, frame, start, after) for start, after in listed.spans]
    flag = skip((4,), frame, listed.end, end)  # after the timeout
    validate_only = False
    # The first version of CreateTopics can't be a dry run (KIP-4).
    if api_key != ApiKey.CREATE_TOPICS or version >= _VALIDATE_ONLY_SINCE:
        skip((1,), frame, flag, end)
        validate_only = bool(frame[flag])
    names, partitions = tuple(name for name, _ in topics), tuple(count for _, count in topics)
    return MutationRequest(api_key, names, partitions, listed, form, validate_only)


def _changed(form: Encoding, api_key: int, frame: Buffer, start: int, end: int) -> tuple[str, int]:
    name, offset = form.text(frame, start, end)
    if name is None:
        what = "to be created" if api_key == ApiKey.CREATE_TOPICS else "that is to grow"
        raise ProtocolError(f"a topic {what} has no name")
    # Manual assignments decide the number of partitions, whatever its field says.
    assigned = form.array_count(frame, offset + 6, end)[0] if api_key == ApiKey.CREATE_TOPICS else 0
    return name, assigned or read_int32(frame, offset, end)


def _deleted(form: Encoding, version: int, frame: Buffer, start: int, end: int) -> TopicKey:
    name, offset = form.text(frame, start, end)
    # From version 6 on a null name means that the id counts (KIP-516).
    return name if name is not None or version < _DELETE_BY_ID_SINCE else _topic_id(frame, offset)


_SINCE: Final[Mapping[int, tuple[int, int, int, int]]] = {
    ApiKey.CREATE_TOPICS: (2, 1, 7, 5),
    ApiKey.DELETE_TOPICS: (1, 5, 6, NEVER),
    ApiKey.CREATE_PARTITIONS: (0, 0, NEVER, NEVER),
}
"""The versions from which on responses have a throttle time, a message, topic ids, and partitions with details."""
_NO_DETAILS: Final = (-1).to_bytes(4, "big", signed=True) + (-1).to_bytes(2, "big", signed=True) + b"\1"
"""Partitions and replication factor unknown, no configuration: the details of a topic that was not made."""


class TopicResult(NamedTuple):
    """One topic's result."""

    name: str | None
    topic_id: TopicId | None
    error_code: int
    partitions: int | None
    """The partition count; None if the response has none."""
    start: int
    end: int

    @property
    def keys(self) -> tuple[TopicKey, ...]:
        """The keys by which the request may have named the topic."""
        return tuple(key for key in (self.name, self.topic_id) if key is not None)


def topic_results(api_key: int, api_version: int, frame: Buffer) -> tuple[TopicResult, ...]:
    """Return the results of a whole response, in its order."""
    return _results(api_key, api_version, frame)[1]


def refused_topic(api_key: int, api_version: int, key: TopicKey, *, error_code: int, message: str) -> bytes:
    """Return the result of a refused topic, with the message if the version has the field."""
    form = API_TABLE[api_key].encoding(api_version)
    _, message_since, id_since, details_since = _SINCE[api_key]
    # A topic that was named has no id in its refusal: only the broker knows it.
    fields = fields_of(
        api_version,
        (0, form.encoded_text(key if isinstance(key, str) else None)),
        (id_since, key if isinstance(key, bytes) else NO_TOPIC_ID),
        (0, error_code.to_bytes(2, "big")),
        (message_since, form.encoded_text(message)),
        (details_since, _NO_DETAILS),
        (0, form.no_tags),
    )
    return b"".join(fields)


def with_refused(
    api_key: int, api_version: int, frame: Buffer, order: Sequence[TopicKey], refused: Mapping[TopicKey, bytes]
) -> bytes:
    """Return the response with the refused topics' results added, in the order of the request.

    Results of the broker for other topics come last.
    """
    listed, results = _results(api_key, api_version, frame)
    by_key = {key: result for result in results for key in result.keys}
    elements: list[Buffer] = []
    taken: set[tuple[int, int]] = set()
    for key in order:
        result = by_key.get(key)
        if key in refused:
            elements.append(refused[key])
        # A request may name a topic twice, by its name and by its id; the broker has one result for both.
        elif result is not None and (result.start, result.end) not in taken:
            taken.add((result.start, result.end))
            elements.append(frame[result.start : result.end])
    # What the broker adds of its own accord must not get lost.
    elements += [frame[start:end] for start, end in listed.spans if (start, end) not in taken]
    return with_elements(API_TABLE[api_key].encoding(api_version), frame, listed, elements)


def all_refused(api_key: int, api_version: int, correlation_id: int, results: Sequence[bytes]) -> bytes:
    """Return a whole response of these results, with a throttle time of 0."""
    form = API_TABLE[api_key].encoding(api_version)
    # The session raises the throttle time in place, as in the broker's own responses.
    before = fields_of(api_version, (_SINCE[api_key][0], bytes(4)), (0, form.encoded_count(len(results))))
    return response_frame(api_key, api_version, correlation_id, *before, *results, form.no_tags)


def _results(api_key: int, api_version: int, frame: Buffer) -> tuple[ElementList, tuple[TopicResult, ...]]:
    form = API_TABLE[api_key].encoding(api_version)
    throttle_since, message_since, id_since, details_since = _SINCE[api_key]
    # At last partitions, replication factor, and the settings with their values, a flag, a source and a flag.
    fields: Layout = fields_of(
        api_version,
        (0, form.string),
        (id_since, TOPIC_ID_BYTES),
        (0, 2),
        (message_since, form.string),
        (details_since, 6),
        (details_since, form.structs(form.string, form.string, 3)),
    )
    element: Layout = (*fields, *form.tags)
    offset = whole_response_body(api_key, api_version, frame) + sum(fields_of(api_version, (throttle_since, 4)))
    # No request that is read whole names more.
    listed = element_list(form, element, frame, offset, len(frame), at_most=MAX_ELEMENTS)
    results: list[TopicResult] = []
    for start, end in listed.spans:
        name, offset = form.text(frame, start, end)
        found, partitions = None, None
        if api_version >= id_since:
            found = _topic_id(frame, offset)
            offset += TOPIC_ID_BYTES
        error_code = read_int16(frame, offset, end)
        if api_version >= details_since:
            partitions = read_int32(frame, skip((2, form.string), frame, offset, end), end)
        results.append(TopicResult(name, found, error_code, partitions, start, end))
    return listed, tuple(results)


MISSING_INTERNAL_TOPICS: Final = 3
"""The status code of a heartbeat with topics in its detail."""
DETAIL_START: Final = "Internal topics are missing: "
MAY_NOT_CREATE: Final = "Unauthorized to CREATE on topics "
"""The continuation of the detail if the broker creates none of them."""
_BEFORE_STATUS: Final[Layout] = (6, compact_string, compact_string, 16)
"""Throttle time and error, its message, the member, its epoch and three intervals."""


def topics_in_the_making(api_version: int, frame: Buffer) -> tuple[str, ...]:
    """Return the internal topics that a broker creates because of a streams group's heartbeat.

    The response has no field for them: they are in the detail of a status, which is a text.
    """
    end = len(frame)
    body = whole_response_body(ApiKey.STREAMS_GROUP_HEARTBEAT, api_version, frame)
    count, offset = compact_array_count(frame, skip(_BEFORE_STATUS, frame, body, end), end)
    names: tuple[str, ...] = ()
    for _ in range(count):
        # A status is a code of one byte, a detail and tags.
        code_at, offset = offset, skip((1,), frame, offset, end)
        detail, offset = COMPACT.text(frame, offset, end)
        offset = tags(frame, offset, end)
        if frame[code_at] != MISSING_INTERNAL_TOPICS or detail is None or not detail.startswith(DETAIL_START):
            continue
        # A reason why they aren't created follows after a semicolon.
        listed, _, rest = detail.removeprefix(DETAIL_START).partition(";")
        # The broker creates either all of the topics or, without the right to, none.
        if MAY_NOT_CREATE not in rest:
            names += tuple(name for name in listed.split(", ") if name)
    return names
