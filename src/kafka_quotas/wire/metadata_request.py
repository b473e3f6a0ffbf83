"""Metadata requests: which topics they name, whether these may be made by asking, and requests of our own.

Up to version 3 a broker that makes topics on first use makes every topic that is asked for; from version 4 on the
request says whether it may.

**Source:** `MetadataRequest.json`, Kafka 4.1; KIP-4 (allow_auto_topic_creation), KIP-516 (topic ids).
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.response_header import RESPONSE_HEAD_BYTES
from kafka_quotas.wire.spelling import COMPACT, MAX_ELEMENTS, OLD, ElementList, Spelling, element_list, spelling
from kafka_quotas.wire.topic_id import TOPIC_ID_BYTES, TopicId
from kafka_quotas.wire.walk import Buffer, Layout, read_int32, read_unsigned_varint, walk
from kafka_quotas.wire.whole_frame import framed

METADATA: Final = 3
FLEXIBLE_SINCE: Final = 9
NULL_IS_ALL_SINCE: Final = 1
AUTO_CREATION_SINCE: Final = 4
TOPIC_ID_SINCE: Final = 10
BY_NAME_VERSION: Final = 4
"""The version in which topics are asked for by name: the first that can leave topics unmade; Kafka 0.11 and later."""
BY_ID_VERSION: Final = 12
"""The version in which topics are asked for by id: the first that can; Kafka 3.1 and later."""

BROKERS_VERSION: Final = 1
"""The version in which brokers are asked for: the first that can name no topic; Kafka 0.10 and later."""

_HEAD: Final = Struct(">hhi")
_BROKER_COUNT: Final = Struct(">i")


class MetadataRequest(NamedTuple):
    """The topics named, in order (None: all), where they are, and whether they may be made.

    `auto_creation_at` is where the request says so, None in versions that can't.
    """

    names: tuple[str, ...] | None
    listed: ElementList
    may_create: bool
    auto_creation_at: int | None


def parse_metadata_request(frame: Buffer, header: RequestHeader) -> MetadataRequest:
    """Return what a whole Metadata request asks for; topics named by id alone are left out of its names.

    *Raises* `ProtocolError` if it can't be one.
    """
    version = header.api_version
    form = spelling(version, FLEXIBLE_SINCE)
    end = header.frame_end
    id_bytes: Layout = (TOPIC_ID_BYTES,) if version >= TOPIC_ID_SINCE else ()
    listed = element_list(form, (*id_bytes, form.string, *form.tags), frame, header.end, end, at_most=MAX_ELEMENTS)
    names: tuple[str, ...] | None = None
    if not _is_all(form, frame, listed, version):
        found = (form.text(frame, start + _fixed_bytes(id_bytes), behind)[0] for start, behind in listed.spans)
        names = tuple(name for name in found if name is not None)
        if len(names) < len(listed.spans) and not id_bytes:
            raise ProtocolError("a topic of a Metadata request has no name")
    if version < AUTO_CREATION_SINCE:
        return MetadataRequest(names, listed, True, None)  # noqa: FBT003 - a tuple's field
    walk((1,), frame, listed.end, end)
    return MetadataRequest(names, listed, bool(frame[listed.end]), listed.end)


def ask_by_name(names: Sequence[str] | None, *, correlation_id: int, client_id: str) -> bytes:
    """Return the request for some topics, None for all of them, that makes none of them."""
    listed = (-1).to_bytes(4, "big", signed=True) if names is None else _listed(OLD, names)
    return _request(BY_NAME_VERSION, correlation_id, client_id, listed + b"\0")


def ask_by_id(topic_ids: Sequence[TopicId], *, correlation_id: int, client_id: str) -> bytes:
    """Return the request for the topics with these ids."""
    form = COMPACT
    topics = b"".join(topic_id + form.encoded_text(None) + form.no_tags for topic_id in topic_ids)
    no_creation, no_operations = b"\0", b"\0"
    body = form.encoded_count(len(topic_ids)) + topics + no_creation + no_operations + form.no_tags
    return _request(BY_ID_VERSION, correlation_id, client_id, form.no_tags + body)


def ask_for_brokers(*, correlation_id: int, client_id: str) -> bytes:
    """Return the request for the brokers alone, which names no topic."""
    return _request(BROKERS_VERSION, correlation_id, client_id, _listed(OLD, ()))


def has_brokers(frame: Buffer) -> bool:
    """Return whether the answer to `ask_for_brokers` names a broker: those that are errors name none."""
    offset = RESPONSE_HEAD_BYTES
    return len(frame) >= offset + _BROKER_COUNT.size and _BROKER_COUNT.unpack_from(frame, offset)[0] > 0


def _listed(form: Spelling, names: Sequence[str]) -> bytes:
    return form.encoded_count(len(names)) + b"".join(form.encoded_text(name) for name in names)


def _request(version: int, correlation_id: int, client_id: str, rest: bytes) -> bytes:
    return framed(_HEAD.pack(METADATA, version, correlation_id) + OLD.encoded_text(client_id) + rest)


def _is_all(form: Spelling, frame: Buffer, listed: ElementList, version: int) -> bool:
    """Return whether the request asks for every topic: an empty list in version 0, null later."""
    if version < NULL_IS_ALL_SINCE:
        return not listed.spans
    if form.is_compact:
        return read_unsigned_varint(frame, listed.start, listed.end)[0] == 0
    return read_int32(frame, listed.start, listed.end) < 0


def _fixed_bytes(layout: Layout) -> int:
    """Return how many bytes the fixed fields of a layout take."""
    return sum(step for step in layout if isinstance(step, int))
