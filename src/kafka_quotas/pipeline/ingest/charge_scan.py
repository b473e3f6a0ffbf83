"""The sizes that a Produce or Fetch request is charged with, in machine code: `formats.request_charge` without objects.

Each function leaves bytes in a small array of figures and returns the place after what it read, -1 if it refuses.
"""

from typing import Any, Final

from kafka_quotas.pipeline.formats.request_charge import (
    ABORTED_BYTES,
    FETCH_FIXED_BYTES,
    FETCH_FLEXIBLE,
    FETCH_PARTITION_BYTES,
    FETCH_TOPIC_IDS,
    PRODUCE_FIXED_BYTES,
    PRODUCE_FLEXIBLE,
    PRODUCE_PARTITION_BYTES,
    PRODUCE_TOPIC_IDS,
    UUID_BYTES,
    compact_length_bytes,
)
from kafka_quotas.pipeline.kernels.compiled import compiled
from kafka_quotas.pipeline.kernels.json_scan import (
    CLOSE,
    CLOSE_LIST,
    COMMA,
    MINUS,
    NULL,
    OPEN,
    OPEN_LIST,
    N,
    is_text,
    read_key,
    read_literal,
    read_optional_string,
    read_string,
    read_whole,
    skip_value,
    text,
)

_BYTES, _TOPICS, _TAGS, _BY_ID = range(4)
"""Places of figures: bytes so far, topics, 1 for a flexible version with tagged fields, 1 for topic ids."""
CHARGE_FIGURES: Final = 4
_LARGEST_SIZE: Final = 2**31
_TRANSACTION, _TOPIC_DATA = text("transactionalId"), text("topicData")
_NAME, _PARTITION_DATA = text("name"), text("partitionData")
_THROTTLE, _RESPONSES = text("throttleTimeMs"), text("responses")
_TOPIC, _PARTITIONS = text("topic"), text("partitions")
_RECORDS, _ABORTED = text("recordsSizeInBytes"), text("abortedTransactions")
_REPLICA_ID, _REPLICA_STATE = text("replicaId"), text("replicaState")
_compact = compiled(compact_length_bytes)


@compiled
def _topics(buf: Any, at: int, out: Any, names: Any, lists: Any, is_fetch: bool) -> int:
    """Add the size of a list of topics to `out[_BYTES]`, and return the place after it."""
    if buf[at] != OPEN_LIST:
        return -1
    at += 1
    topics = 0
    while buf[at] != CLOSE_LIST:
        if topics > 0:
            if buf[at] != COMMA:
                return -1
            at += 1
        at = _topic(buf, at, out, names, lists, is_fetch)
        if at < 0:
            return -1
        topics += 1
    out[_TOPICS] = topics
    out[_BYTES] += _length_bytes(out, topics)
    return at + 1


@compiled
def _topic(buf: Any, at: int, out: Any, names: Any, lists: Any, is_fetch: bool) -> int:
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return -1
    has_name, has_list = False, False
    while buf[at] != CLOSE:
        start, stop, at = read_key(buf, at + 1)
        if at < 0:
            return -1
        if not out[_BY_ID] and is_text(buf, start, stop, names):
            start, stop, at = read_string(buf, at)
            if has_name or at < 0:
                return -1
            has_name = True
            out[_BYTES] += _text_bytes(out, stop - start)
        elif is_text(buf, start, stop, lists):
            if has_list:
                return -1
            has_list = True
            at = _partitions(buf, at, out, is_fetch)
        else:
            at = skip_value(buf, at)
        if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
            return -1
    if not has_list or not (has_name or out[_BY_ID]):
        return -1
    out[_BYTES] += out[_TAGS] + (UUID_BYTES if out[_BY_ID] else 0)
    return at + 1


@compiled
def _partitions(buf: Any, at: int, out: Any, is_fetch: bool) -> int:
    if buf[at] != OPEN_LIST:
        return -1
    at += 1
    count = 0
    while buf[at] != CLOSE_LIST:
        if count > 0:
            if buf[at] != COMMA:
                return -1
            at += 1
        at = _partition(buf, at, out, is_fetch)
        if at < 0:
            return -1
        count += 1
    out[_BYTES] += _length_bytes(out, count)
    return at + 1


@compiled
def _partition(buf: Any, at: int, out: Any, is_fetch: bool) -> int:
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return -1
    records, aborted = -1, -1
    while buf[at] != CLOSE:
        start, stop, at = read_key(buf, at + 1)
        if at < 0:
            return -1
        if is_text(buf, start, stop, _RECORDS):
            if records >= 0:
                return -1
            records, at = read_whole(buf, at)
        elif is_fetch and is_text(buf, start, stop, _ABORTED):
            if aborted >= 0:
                return -1
            aborted, at = _list_length(buf, at)
        else:
            at = skip_value(buf, at)
        if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
            return -1
    if not 0 <= records < _LARGEST_SIZE or (is_fetch and aborted < 0):
        return -1
    out[_BYTES] += _length_bytes(out, records) + records + out[_TAGS]
    if is_fetch:
        out[_BYTES] += FETCH_PARTITION_BYTES + _length_bytes(out, aborted) + aborted * (ABORTED_BYTES + out[_TAGS])
    else:
        out[_BYTES] += PRODUCE_PARTITION_BYTES
    return at + 1


@compiled
def _list_length(buf: Any, at: int) -> tuple[int, int]:
    """Return the length of a list, 0 for null, and the place after it."""
    if buf[at] == N:
        return 0, read_literal(buf, at, NULL)
    if buf[at] != OPEN_LIST:
        return 0, -1
    at += 1
    count = 0
    while buf[at] != CLOSE_LIST:
        if count > 0:
            if buf[at] != COMMA:
                return 0, -1
            at += 1
        at = skip_value(buf, at)
        if at < 0:
            return 0, -1
        count += 1
    return count, at + 1


@compiled
def _length_bytes(out: Any, length: int) -> int:
    return _compact(length) if out[_TAGS] else 4


@compiled
def _text_bytes(out: Any, length: int) -> int:
    return length + (_compact(length) if out[_TAGS] else 2)


@compiled
def read_produce_request(buf: Any, at: int, version: int, out: Any) -> int:
    """Return the place after a Produce request and leave its size after the header in `out[0]`."""
    out[_BYTES], out[_BY_ID] = PRODUCE_FIXED_BYTES, version >= PRODUCE_TOPIC_IDS
    out[_TAGS] = version >= PRODUCE_FLEXIBLE
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return -1
    has_transaction, has_topics = False, False
    while buf[at] != CLOSE:
        start, stop, at = read_key(buf, at + 1)
        if at < 0:
            return -1
        if is_text(buf, start, stop, _TRANSACTION):
            if has_transaction:
                return -1
            has_transaction = True
            start, stop, at = read_optional_string(buf, at)
            out[_BYTES] += _text_bytes(out, stop - start)
        elif is_text(buf, start, stop, _TOPIC_DATA):
            if has_topics:
                return -1
            has_topics = True
            at = _topics(buf, at, out, _NAME, _PARTITION_DATA, False)
        else:
            at = skip_value(buf, at)
        if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
            return -1
    if not (has_transaction and has_topics):
        return -1
    out[_BYTES] += 2 * out[_TAGS]  # of the header and of the request
    return at + 1


@compiled
def read_fetch_response(buf: Any, at: int, version: int, out: Any) -> int:
    """Return the place after a Fetch response and leave its charge in `out[0]`."""
    out[_BYTES], out[_BY_ID] = FETCH_FIXED_BYTES, version >= FETCH_TOPIC_IDS
    out[_TAGS] = version >= FETCH_FLEXIBLE
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return -1
    throttle_ms, has_topics = -1, False
    while buf[at] != CLOSE:
        start, stop, at = read_key(buf, at + 1)
        if at < 0:
            return -1
        if is_text(buf, start, stop, _THROTTLE):
            if throttle_ms >= 0:
                return -1
            throttle_ms, at = read_whole(buf, at)
        elif is_text(buf, start, stop, _RESPONSES):
            if has_topics:
                return -1
            has_topics = True
            at = _topics(buf, at, out, _TOPIC, _PARTITIONS, True)
        else:
            at = skip_value(buf, at)
        if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
            return -1
    if not has_topics or throttle_ms < 0:
        return -1
    out[_BYTES] += out[_TAGS]
    if out[_TOPICS] == 0 and throttle_ms > 0:
        out[_BYTES] = 0
    return at + 1


@compiled
def read_fetch_request(buf: Any, at: int) -> tuple[bool, int]:
    """Return whether a Fetch request is a follower's, and the place after it."""
    if buf[at] != OPEN or buf[at + 1] == CLOSE:
        return False, -1
    states, is_follower = 0, False
    while buf[at] != CLOSE:
        start, stop, at = read_key(buf, at + 1)
        if at < 0:
            return False, -1
        if is_text(buf, start, stop, _REPLICA_ID):
            states += 1
            is_follower, at = buf[at] != MINUS, _number_end_of(buf, at)
        elif is_text(buf, start, stop, _REPLICA_STATE):
            states += 1
            is_follower, at = _replica_state(buf, at)
        else:
            at = skip_value(buf, at)
        if at < 0 or states > 1 or (buf[at] != COMMA and buf[at] != CLOSE):
            return False, -1
    return is_follower, at + 1


@compiled
def _number_end_of(buf: Any, at: int) -> int:
    _, at = read_whole(buf, at + (buf[at] == MINUS))
    return at


@compiled
def _replica_state(buf: Any, at: int) -> tuple[bool, int]:
    """Return whether the state names a follower, where its first member is the replica's number."""
    if buf[at] != OPEN:
        return False, -1
    start, stop, at = read_key(buf, at + 1)
    if at < 0 or not is_text(buf, start, stop, _REPLICA_ID):
        return False, -1
    is_follower, at = buf[at] != MINUS, _number_end_of(buf, at)
    while at >= 0 and buf[at] == COMMA:
        start, stop, at = read_key(buf, at + 1)
        if at < 0 or is_text(buf, start, stop, _REPLICA_ID):
            return False, -1
        at = skip_value(buf, at)
    if at < 0 or buf[at] != CLOSE:
        return False, -1
    return is_follower, at + 1
