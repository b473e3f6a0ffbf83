"""How many partitions a logged admin request created, added or deleted.

The log tells neither how many partitions a deleted topic had, nor how many there were before some were added: one per
topic is counted then, and the figure is estimated. **Source:** KIP-599, `ReplicationControlManager` (Kafka 4.0).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_CREATE_TOPICS: Final = 19
_DELETE_TOPICS: Final = 20
_CREATE_PARTITIONS: Final = 37
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MUTATION_APIS: Final = frozenset({_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS})


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationCount:
    """Partitions that a request was charged with."""

    partitions: int
    is_estimated: bool


def mutation_count(api_key: int, *, request: Mapping[str, Any], response: Mapping[str, Any]) -> MutationCount:
    """The partitions that a request of `MUTATION_APIS` was charged with; topics that were refused cost nothing."""
    if request.get("validateOnly"):
        return MutationCount(partitions=0, is_estimated=False)
    if api_key == _CREATE_TOPICS:
        return _created(request, response)
    accepted = _accepted(response)
    if api_key == _DELETE_TOPICS:
        return MutationCount(partitions=len(accepted), is_estimated=bool(accepted))
    return _added(request, accepted)


def is_of_broker(api_key: int, *, client_id: str, request: Mapping[str, Any]) -> bool:
    """Whether a broker makes internal topics for itself, which it does in its own name: its id is the client-id.

    Topics that clients make by asking for them are made in the client's name. **Source:**
    `DefaultAutoTopicCreationManager`, `KafkaApis.handleFindCoordinatorRequest` (4.0).
    """
    if api_key != _CREATE_TOPICS or not client_id.isdecimal():
        return False
    names = {topic["name"] for topic in request["topics"]}
    return bool(names) and names <= _INTERNAL_TOPICS


def _created(request: Mapping[str, Any], response: Mapping[str, Any]) -> MutationCount:
    answered = {topic["name"]: topic for topic in _accepted(response)}
    partitions, is_estimated = 0, False
    for topic in request["topics"]:
        answer = answered.get(topic["name"])
        if answer is None:
            continue
        told = answer.get("numPartitions", -1)  # from version 5 on
        count = told if told > 0 else max(topic["numPartitions"], len(topic.get("assignments") or ()))
        is_estimated |= count < 1  # the broker's default, which is not logged
        partitions += max(1, count)
    return MutationCount(partitions=partitions, is_estimated=is_estimated)


def _added(request: Mapping[str, Any], accepted: list[Mapping[str, Any]]) -> MutationCount:
    names = {topic["name"] for topic in accepted}
    assignments = [topic.get("assignments") or () for topic in request["topics"] if topic["name"] in names]
    return MutationCount(partitions=sum(max(1, len(each)) for each in assignments), is_estimated=not all(assignments))


def _accepted(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    results = response.get("topics", response.get("responses", response.get("results", ())))
    return [result for result in results if result["errorCode"] == 0]
