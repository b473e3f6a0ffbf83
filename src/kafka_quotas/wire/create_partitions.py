"""CreatePartitions requests: which topics are to grow to how many partitions.

**Source:** `CreatePartitionsRequest.json`, Kafka 4.1; KIP-195.
"""

from typing import Final, NamedTuple

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.spelling import MAX_ELEMENTS, ElementList, Spelling, element_list, spelling
from kafka_quotas.wire.walk import Buffer, read_int32, walk

CREATE_PARTITIONS: Final = 37
FLEXIBLE_SINCE: Final = 2


class GrownTopic(NamedTuple):
    """A topic and the number of partitions that it is to have in all."""

    name: str
    partitions: int


class CreatePartitionsRequest(NamedTuple):
    """The topics in order, where they are, and whether nothing is to be made."""

    topics: tuple[GrownTopic, ...]
    listed: ElementList
    validate_only: bool


def parse_create_partitions(frame: Buffer, header: RequestHeader) -> CreatePartitionsRequest:
    """Return what a whole CreatePartitions request asks for. *Raises* `ProtocolError` if it can't be one."""
    form = spelling(header.api_version, FLEXIBLE_SINCE)
    end = header.frame_end
    assignments = form.structs(form.array(4))
    element = (form.string, 4, assignments, *form.tags)
    listed = element_list(form, element, frame, header.end, end, at_most=MAX_ELEMENTS)
    topics = tuple(_topic(form, frame, start, behind) for start, behind in listed.spans)
    flag = walk((4,), frame, listed.end, end)
    walk((1,), frame, flag, end)
    return CreatePartitionsRequest(topics, listed, bool(frame[flag]))


def _topic(form: Spelling, frame: Buffer, start: int, end: int) -> GrownTopic:
    name, offset = form.text(frame, start, end)
    if name is None:
        raise ProtocolError("a topic that is to grow has no name")
    return GrownTopic(name, read_int32(frame, offset, end))
