"""How large a logged request or response was: the request log tells the size of the records only.

The framing around them is reckoned from the message definitions; tagged fields that a client may add are not known,
which is why these sizes are called estimated. **Source:** ProduceRequest.json, FetchResponse.json, RequestHeader.json
(Kafka 4.0), ShareFetchResponse.json (4.3); `KafkaApis.handleProduceRequest` charges the whole request,
`FetchResponse.sizeOf` and `ShareFetchResponse.sizeOf` are a fetch's charge.
"""

from collections.abc import Mapping
from typing import Any, Final

_PRODUCE_FLEXIBLE: Final = 9
_PRODUCE_TOPIC_IDS: Final = 13
_FETCH_FLEXIBLE: Final = 12
_FETCH_TOPIC_IDS: Final = 13
_UUID: Final = 16
_CLASSIC_HEADER: Final = 10
_TAGS: Final = 1
_PRODUCE_FIXED: Final = 2 + 4  # acks, timeout
_FETCH_FIXED: Final = 4 + 4 + 2 + 4  # size, throttle time, error, session id
_FETCH_PARTITION: Final = 4 + 2 + 8 + 8 + 8 + 4  # index, error, three offsets, preferred replica
_ABORTED: Final = 8 + 8  # producer id, first offset
_SHARE_FETCH_FIXED: Final = 4 + 4 + 2 + 1 + 4 + 1  # size, throttle time, error, no message, lock duration, no brokers
_SHARE_FETCH_PARTITION: Final = 4 + 2 + 2 + 8 + 1  # index, two errors, leader with its epoch and tags
_ACQUIRED: Final = 8 + 8 + 2 + 1  # first and last offset, deliveries, tags


def produce_request_bytes(request: Mapping[str, Any], *, version: int, client_id: str) -> int:
    """The size of a Produce request with its header, in bytes."""
    size = _CLASSIC_HEADER + len(client_id.encode()) + _PRODUCE_FIXED
    if version < _PRODUCE_FLEXIBLE:
        return size + _classic_produce_body(request)
    topics = request["topicData"]
    size += 2 * _TAGS + _compact_text_bytes(request["transactionalId"] or "") + _compact_length_bytes(len(topics))
    for topic in topics:
        partitions = topic["partitionData"]
        size += _UUID if version >= _PRODUCE_TOPIC_IDS else _compact_text_bytes(topic["name"])
        size += _compact_length_bytes(len(partitions)) + _TAGS
        for partition in partitions:
            records = partition["recordsSizeInBytes"]
            size += 4 + _compact_length_bytes(records) + records + _TAGS
    return size


def fetch_response_bytes(response: Mapping[str, Any], *, version: int) -> int:
    """What a Fetch response is charged with, in bytes: 0 for the empty answer that a throttled fetch gets."""
    topics = response["responses"]
    if not topics and response["throttleTimeMs"] > 0:
        return 0
    if version < _FETCH_FLEXIBLE:
        return _FETCH_FIXED + _classic_fetch_topics(topics)
    size = _FETCH_FIXED + _compact_length_bytes(len(topics)) + _TAGS
    for topic in topics:
        partitions = topic["partitions"]
        size += _UUID if version >= _FETCH_TOPIC_IDS else _compact_text_bytes(topic["topic"])
        size += _compact_length_bytes(len(partitions)) + _TAGS
        for partition in partitions:
            records, aborted = partition["recordsSizeInBytes"], partition["abortedTransactions"] or ()
            size += _FETCH_PARTITION + _compact_length_bytes(records) + records + _TAGS
            size += _compact_length_bytes(len(aborted)) + len(aborted) * (_ABORTED + _TAGS)
    return size


def share_fetch_response_bytes(response: Mapping[str, Any]) -> int:
    """Return what a ShareFetch response is charged with, in bytes.

    0 for an error as a whole, and for a throttled one, whose bytes the broker takes back.
    """
    if response["errorCode"] or response["throttleTimeMs"] > 0:
        return 0
    topics = response["responses"]
    size = _SHARE_FETCH_FIXED + _compact_length_bytes(len(topics)) + _TAGS
    for topic in topics:
        partitions = topic["partitions"]
        size += _UUID + _compact_length_bytes(len(partitions)) + _TAGS
        for partition in partitions:
            records, acquired = partition["recordsSizeInBytes"], partition["acquiredRecords"]
            size += _SHARE_FETCH_PARTITION + _compact_length_bytes(records) + records + _TAGS
            size += _compact_text_bytes(partition["errorMessage"] or "")
            size += _compact_text_bytes(partition["acknowledgeErrorMessage"] or "")
            size += _compact_length_bytes(len(acquired)) + len(acquired) * _ACQUIRED
    return size


def _classic_produce_body(request: Mapping[str, Any]) -> int:
    """The part behind the fixed fields, where every length takes four bytes, that of a text two."""
    size = 2 + len((request.get("transactionalId") or "").encode()) + 4
    for topic in request["topicData"]:
        size += 2 + len(topic["name"].encode()) + 4
        size += sum(8 + partition["recordsSizeInBytes"] for partition in topic["partitionData"])
    return size


def _classic_fetch_topics(topics: list[Mapping[str, Any]]) -> int:
    size = 4
    for topic in topics:
        size += 2 + len(topic["topic"].encode()) + 4
        for partition in topic["partitions"]:
            aborted = partition.get("abortedTransactions") or ()
            size += _FETCH_PARTITION + 4 + partition["recordsSizeInBytes"] + 4 + len(aborted) * _ABORTED
    return size


def _compact_text_bytes(text: str) -> int:
    length = len(text.encode())
    return length + _compact_length_bytes(length)


def _compact_length_bytes(length: int) -> int:
    """The bytes of a length that is written plus one, seven bits at a time."""
    return 1 if length < 0x7F else 2 if length < 0x3FFF else 3 if length < 0x1FFFFF else 4 if length < 0xFFFFFFF else 5
