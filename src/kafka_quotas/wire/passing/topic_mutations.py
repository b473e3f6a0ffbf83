"""CreateTopics, CreatePartitions and DeleteTopics: the topics of a request, and the refusal of some.

CreateTopics and CreatePartitions name partition counts. DeleteTopics identifies topics by name or, from version 6 on,
by id. What isn't refused is copied unchanged, including unknown tagged fields.

**Source:** `CreateTopicsRequest.json`, `CreatePartitionsRequest.json`, `DeleteTopicsRequest.json` and their responses,
Kafka 4.1, and 3.9 for older versions; KIP-195 (validate only), KIP-464 (partitions of -1: the broker's default),
KIP-516 (topic ids), KIP-599 (the error of a refused topic).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

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
    framed,
    with_elements,
)
from kafka_quotas.wire.codec.skip import Buffer, Layout, read_int16, read_int32, skip
from kafka_quotas.wire.protocol.api import NEVER
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RequestHeader, has_header_tags, whole_response_body

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
    """The places of the topics."""
    form: Encoding
    """The encoding of the request."""
    validate_only: bool


def parse_mutation(frame: Buffer, header: RequestHeader) -> MutationRequest:
    """Return the content of a whole CreateTopics, CreatePartitions or DeleteTopics request.

    Raises:
        ProtocolError: The frame can't be such a request.
    """
    api_key, version = header.api_key, header.api_version
    form = API_TABLE[api_key].encoding(version)
    end = header.frame_end
    # Reading a request whole delays all other clients, so its size is bounded.
    element = _request_element(form, api_key, version)
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


def _request_element(form: Encoding, api_key: int, version: int) -> Layout:
    if api_key == ApiKey.CREATE_TOPICS:
        assignments = form.structs(4, form.array(4))
        configs = form.structs(form.string, form.string)
        return (form.string, 4, 2, assignments, configs, *form.tags)
    if api_key == ApiKey.CREATE_PARTITIONS:
        return (form.string, 4, form.structs(form.array(4)), *form.tags)
    # Names alone are no structures, so they have no tags even in flexible versions.
    return (form.string, TOPIC_ID_BYTES, *form.tags) if version >= _DELETE_BY_ID_SINCE else (form.string,)


def _changed(form: Encoding, api_key: int, frame: Buffer, start: int, end: int) -> tuple[str, int]:
    """Return the name and partition count of a topic to create or to grow."""
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
    if name is not None or version < _DELETE_BY_ID_SINCE:
        return name
    return _topic_id(frame, offset)


def _topic_id(frame: Buffer, offset: int) -> TopicId | None:
    topic_id = bytes(frame[offset : offset + TOPIC_ID_BYTES])
    return None if topic_id == NO_TOPIC_ID else topic_id


class _Since(NamedTuple):
    """The versions from which on the responses of an API have a field."""

    throttle: int
    message: int
    topic_id: int = NEVER
    partitions: int = NEVER


_SINCE: Final[Mapping[int, _Since]] = {
    ApiKey.CREATE_TOPICS: _Since(throttle=2, message=1, topic_id=7, partitions=5),
    ApiKey.DELETE_TOPICS: _Since(throttle=1, message=5, topic_id=6),
    ApiKey.CREATE_PARTITIONS: _Since(throttle=0, message=0),
}
_NO_DETAILS: Final = (-1).to_bytes(4, "big", signed=True) + (-1).to_bytes(2, "big", signed=True) + b"\1"
"""Partitions and replication factor unknown, no configuration: what a topic that was not made has."""


class TopicResult(NamedTuple):
    """One topic's result."""

    name: str | None
    topic_id: TopicId | None
    error_code: int
    partitions: int | None
    """The partition count; None if the response has none."""
    start: int
    """The offset of the result in the frame."""
    end: int

    @property
    def keys(self) -> tuple[TopicKey, ...]:
        """The keys by which the request may have named the topic."""
        return tuple(key for key in (self.name, self.topic_id) if key is not None)


def topic_results(api_key: int, api_version: int, frame: Buffer) -> tuple[TopicResult, ...]:
    """Return the results of a whole response, in its order.

    Raises:
        ProtocolError: The frame can't be such a response.
    """
    form = API_TABLE[api_key].encoding(api_version)
    listed = _listed(api_key, api_version, form, frame)
    return tuple(_result(api_key, api_version, form, frame, span) for span in listed.spans)


def refused_topic(api_key: int, api_version: int, key: TopicKey, *, error_code: int, message: str) -> bytes:
    """Return the result of a refused topic, with the message if the version has the field."""
    since = _SINCE[api_key]
    form = API_TABLE[api_key].encoding(api_version)
    pieces = [form.encoded_text(key if isinstance(key, str) else None)]
    # A topic that was named has no id in its refusal: only the broker knows it.
    if api_version >= since.topic_id:
        pieces.append(key if isinstance(key, bytes) else NO_TOPIC_ID)
    pieces.append(error_code.to_bytes(2, "big"))
    if api_version >= since.message:
        pieces.append(form.encoded_text(message))
    if api_version >= since.partitions:
        pieces.append(_NO_DETAILS)
    return b"".join((*pieces, form.no_tags))


def with_refused(
    api_key: int, api_version: int, frame: Buffer, order: Sequence[TopicKey], refused: Mapping[TopicKey, bytes]
) -> bytes:
    """Return the response with the refused topics' results added, in the order of the request.

    Results of the broker for other topics come last.
    """
    form = API_TABLE[api_key].encoding(api_version)
    listed = _listed(api_key, api_version, form, frame)
    results = [_result(api_key, api_version, form, frame, span) for span in listed.spans]
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
    return with_elements(form, frame, listed, elements)


def all_refused(api_key: int, api_version: int, correlation_id: int, results: Sequence[bytes]) -> bytes:
    """Return a whole response of these results, with a throttle time of 0."""
    form = API_TABLE[api_key].encoding(api_version)
    header = correlation_id.to_bytes(4, "big", signed=True)
    header += b"\0" if has_header_tags(api_key, api_version) else b""
    # The session raises the throttle time in place, as in the broker's own responses.
    throttle = bytes(4) if api_version >= _SINCE[api_key].throttle else b""
    return framed(b"".join((header, throttle, form.encoded_count(len(results)), *results, form.no_tags)))


def _listed(api_key: int, api_version: int, form: Encoding, frame: Buffer) -> ElementList:
    since = _SINCE[api_key]
    offset = whole_response_body(api_key, api_version, frame)
    before = 4 if api_version >= since.throttle else 0
    element = _result_element(since, api_version, form)
    # No request that is read whole names more.
    return element_list(form, element, frame, offset + before, len(frame), at_most=MAX_ELEMENTS)


def _result_element(since: _Since, api_version: int, form: Encoding) -> Layout:
    topic_id: Layout = (TOPIC_ID_BYTES,) if api_version >= since.topic_id else ()
    message: Layout = (form.string,) if api_version >= since.message else ()
    # Partitions, replication factor, and the settings with their values, a flag, a source and a flag.
    details: Layout = (6, form.structs(form.string, form.string, 3)) if api_version >= since.partitions else ()
    return (form.string, *topic_id, 2, *message, *details, *form.tags)


def _result(api_key: int, api_version: int, form: Encoding, frame: Buffer, span: tuple[int, int]) -> TopicResult:
    since = _SINCE[api_key]
    start, end = span
    name, offset = form.text(frame, start, end)
    topic_id: TopicId | None = None
    if api_version >= since.topic_id:
        topic_id = _topic_id(frame, offset)
        offset += TOPIC_ID_BYTES
    error_code = read_int16(frame, offset, end)
    partitions = None
    if api_version >= since.partitions:
        partitions = read_int32(frame, skip((2, form.string), frame, offset, end), end)
    return TopicResult(name, topic_id, error_code, partitions, start, end)
