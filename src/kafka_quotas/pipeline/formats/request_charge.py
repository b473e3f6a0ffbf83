"""The charge of a logged request: estimated sizes, and the partitions of admin requests.

The request log holds the size of the records only. The framing around them is computed from the message definitions.
Tagged fields that a client may add are unknown, which is why these sizes are called estimated. The log holds neither
the partitions of a deleted topic nor the number before some were added: one per topic is counted then, and the figure
is estimated.

**Source:** ProduceRequest.json, FetchResponse.json, RequestHeader.json (Kafka 4.0), ShareFetchResponse.json (4.3);
`KafkaApis.handleProduceRequest` charges the whole request, `FetchResponse.sizeOf` and `ShareFetchResponse.sizeOf` are a
fetch's charge; KIP-599 and `ReplicationControlManager` (Kafka 4.0) for partitions.
"""

from collections.abc import Mapping
from typing import Any, Final

from kafka_quotas.core.model.api_key import ApiKey

_CREATE_TOPICS: Final = ApiKey.CREATE_TOPICS.value
_DELETE_TOPICS: Final = ApiKey.DELETE_TOPICS.value
_CREATE_PARTITIONS: Final = ApiKey.CREATE_PARTITIONS.value
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MUTATION_APIS: Final = frozenset({_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS})


def mutation_count(api_key: int, *, request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the partitions charged to a request of `MUTATION_APIS`, and whether they are estimated.

    Topics that the broker refused cost nothing.
    """
    if request.get("validateOnly"):  # a dry run changes no partitions
        return 0, False
    # CreateTopics has topics, DeleteTopics responses, CreatePartitions results
    results = response.get("topics", response.get("responses", response.get("results", ())))
    accepted = [result for result in results if result["errorCode"] == 0]
    if api_key == _CREATE_TOPICS:
        return _created(request, accepted)
    if api_key == _DELETE_TOPICS:
        return len(accepted), bool(accepted)
    return _added(request, accepted)


def is_of_broker(api_key: int, *, client_id: str, request: Mapping[str, Any]) -> bool:
    """Check whether a broker creates internal topics for itself, under its own id as client-id.

    Topics that clients create by asking for them are created under the client's name.

    **Source:** `DefaultAutoTopicCreationManager`, `KafkaApis.handleFindCoordinatorRequest` (4.0).
    """
    if api_key != _CREATE_TOPICS or not client_id.isdecimal():
        return False
    names = {topic["name"] for topic in request["topics"]}
    return bool(names) and names <= _INTERNAL_TOPICS


def _created(request: Mapping[str, Any], accepted: list[Mapping[str, Any]]) -> tuple[int, bool]:
    logged = {topic["name"]: topic.get("numPartitions", -1) for topic in accepted}  # from version 5 on
    counts = [
        logged[name] if logged[name] > 0 else max(topic["numPartitions"], len(topic.get("assignments") or ()))
        for topic in request["topics"]
        if (name := topic["name"]) in logged
    ]
    # below 1 it is the broker's default, which is not logged
    return sum(max(1, count) for count in counts), any(count < 1 for count in counts)


def _added(request: Mapping[str, Any], accepted: list[Mapping[str, Any]]) -> tuple[int, bool]:
    names = {topic["name"] for topic in accepted}
    assignments = [topic.get("assignments") or () for topic in request["topics"] if topic["name"] in names]
    return sum(max(1, len(each)) for each in assignments), not all(assignments)


PRODUCE_FLEXIBLE: Final = 9  # first version with compact lengths and tagged fields
PRODUCE_TOPIC_IDS: Final = 13  # first version with topic ids in place of names
FETCH_FLEXIBLE: Final = 12
FETCH_TOPIC_IDS: Final = 13
UUID_BYTES: Final = 16
CLASSIC_HEADER_BYTES: Final = 10  # api key, version, correlation id, length of the client-id
_TAGS: Final = 1
PRODUCE_FIXED_BYTES: Final = 2 + 4  # acks, timeout
PRODUCE_PARTITION_BYTES: Final = 4  # index
FETCH_FIXED_BYTES: Final = 4 + 4 + 2 + 4  # size, throttle time, error, session id
FETCH_PARTITION_BYTES: Final = 4 + 2 + 8 + 8 + 8 + 4  # index, error, three offsets, preferred replica
ABORTED_BYTES: Final = 8 + 8  # producer id, first offset
_SHARE_FETCH_FIXED: Final = 4 + 4 + 2 + 1 + 4 + 1  # size, throttle time, error, no message, lock duration, no brokers
_SHARE_FETCH_PARTITION: Final = 4 + 2 + 2 + 8 + 1  # index, two errors, leader with its epoch and tags
_ACQUIRED: Final = 8 + 8 + 2 + 1  # first and last offset, deliveries, tags


def produce_request_bytes(request: Mapping[str, Any], *, version: int, client_id: str) -> int:
    """Return the size of a Produce request with its header, in bytes."""
    size = CLASSIC_HEADER_BYTES + len(client_id.encode()) + PRODUCE_FIXED_BYTES
    if version < PRODUCE_FLEXIBLE:
        return size + _classic_produce_body(request)
    topics = request["topicData"]
    size += 2 * _TAGS + _compact_text_bytes(request["transactionalId"] or "") + compact_length_bytes(len(topics))
    for topic in topics:
        partitions = topic["partitionData"]
        size += UUID_BYTES if version >= PRODUCE_TOPIC_IDS else _compact_text_bytes(topic["name"])
        size += compact_length_bytes(len(partitions)) + _TAGS
        for partition in partitions:
            records = partition["recordsSizeInBytes"]
            size += PRODUCE_PARTITION_BYTES + compact_length_bytes(records) + records + _TAGS
    return size


def fetch_response_bytes(response: Mapping[str, Any], *, version: int) -> int:
    """Return the charge of a Fetch response in bytes.

    Returns:
        0 for the empty response to a throttled fetch.
    """
    topics = response["responses"]
    if not topics and response["throttleTimeMs"] > 0:
        return 0
    if version < FETCH_FLEXIBLE:
        return FETCH_FIXED_BYTES + _classic_fetch_topics(topics)
    size = FETCH_FIXED_BYTES + compact_length_bytes(len(topics)) + _TAGS
    for topic in topics:
        partitions = topic["partitions"]
        size += UUID_BYTES if version >= FETCH_TOPIC_IDS else _compact_text_bytes(topic["topic"])
        size += compact_length_bytes(len(partitions)) + _TAGS
        for partition in partitions:
            records, aborted = partition["recordsSizeInBytes"], partition["abortedTransactions"] or ()
            size += FETCH_PARTITION_BYTES + compact_length_bytes(records) + records + _TAGS
            size += compact_length_bytes(len(aborted)) + len(aborted) * (ABORTED_BYTES + _TAGS)
    return size


def share_fetch_response_bytes(response: Mapping[str, Any]) -> int:
    """Return the charge of a ShareFetch response in bytes.

    Returns:
        0 for an error as a whole, and for a throttled response, whose bytes the broker takes back.
    """
    if response["errorCode"] or response["throttleTimeMs"] > 0:
        return 0
    topics = response["responses"]
    size = _SHARE_FETCH_FIXED + compact_length_bytes(len(topics)) + _TAGS
    for topic in topics:
        partitions = topic["partitions"]
        size += UUID_BYTES + compact_length_bytes(len(partitions)) + _TAGS
        for partition in partitions:
            records, acquired = partition["recordsSizeInBytes"], partition["acquiredRecords"]
            size += _SHARE_FETCH_PARTITION + compact_length_bytes(records) + records + _TAGS
            size += _compact_text_bytes(partition["errorMessage"] or "")
            size += _compact_text_bytes(partition["acknowledgeErrorMessage"] or "")
            size += compact_length_bytes(len(acquired)) + len(acquired) * _ACQUIRED
    return size


def _classic_produce_body(request: Mapping[str, Any]) -> int:
    """Return the size after the fixed fields, where every length takes four bytes and that of a text two."""
    size = 2 + len((request.get("transactionalId") or "").encode()) + 4
    for topic in request["topicData"]:
        size += 2 + len(topic["name"].encode()) + 4
        size += sum(
            PRODUCE_PARTITION_BYTES + 4 + partition["recordsSizeInBytes"] for partition in topic["partitionData"]
        )
    return size


def _classic_fetch_topics(topics: list[Mapping[str, Any]]) -> int:
    size = 4
    for topic in topics:
        size += 2 + len(topic["topic"].encode()) + 4
        for partition in topic["partitions"]:
            aborted = partition.get("abortedTransactions") or ()
            size += FETCH_PARTITION_BYTES + 4 + partition["recordsSizeInBytes"] + 4 + len(aborted) * ABORTED_BYTES
    return size


def _compact_text_bytes(text: str) -> int:
    length = len(text.encode())
    return length + compact_length_bytes(length)


def compact_length_bytes(length: int) -> int:
    """Return the size of a length that is encoded plus one, seven bits at a time, in bytes."""
    return 1 if length < 0x7F else 2 if length < 0x3FFF else 3 if length < 0x1FFFFF else 4 if length < 0xFFFFFFF else 5
