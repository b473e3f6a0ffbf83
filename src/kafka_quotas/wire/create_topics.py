"""CreateTopics requests: which topics are to be made with how many partitions, and the same request for fewer topics.

**Source:** `CreateTopicsRequest.json`, Kafka 4.1, and 3.9 for versions 0 and 1; KIP-195 (validate only), KIP-464
(partitions of -1: the broker's default).
"""

from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.spelling import MAX_ELEMENTS, ElementList, Spelling, element_list, spelling
from kafka_quotas.wire.walk import Buffer, read_int32, walk

CREATE_TOPICS: Final = 19
FLEXIBLE_SINCE: Final = 5
VALIDATE_ONLY_SINCE: Final = 1


class NewTopic(NamedTuple):
    """A topic as a request wants it: `partitions` as written (-1: the default), or as many as have replicas assigned.

    `is_assigned` says that the number is that of manual assignments.
    """

    name: str
    partitions: int
    is_assigned: bool


class CreateTopicsRequest(NamedTuple):
    """The topics in order, where they are, and whether nothing is to be made."""

    topics: tuple[NewTopic, ...]
    listed: ElementList
    validate_only: bool


def parse_create_topics(frame: Buffer, header: RequestHeader) -> CreateTopicsRequest:
    """Return what a whole CreateTopics request asks for. *Raises* `ProtocolError` if it can't be one."""
    form = spelling(header.api_version, FLEXIBLE_SINCE)
    end = header.frame_end
    assignments = form.structs(4, form.array(4))
    configs = form.structs(form.string, form.string)
    element = (form.string, 4, 2, assignments, configs, *form.tags)
    listed = element_list(form, element, frame, header.end, end, at_most=MAX_ELEMENTS)
    topics = tuple(_topic(form, frame, start, behind) for start, behind in listed.spans)
    flag = walk((4,), frame, listed.end, end)
    validate_only = False
    if header.api_version >= VALIDATE_ONLY_SINCE:
        walk((1,), frame, flag, end)
        validate_only = bool(frame[flag])
    return CreateTopicsRequest(topics, listed, validate_only)


def _topic(form: Spelling, frame: Buffer, start: int, end: int) -> NewTopic:
    name, offset = form.text(frame, start, end)
    if name is None:
        raise ProtocolError("a topic to be created has no name")
    assigned, _ = form.array_count(frame, offset + 6, end)
    return NewTopic(name, assigned or read_int32(frame, offset, end), assigned > 0)
