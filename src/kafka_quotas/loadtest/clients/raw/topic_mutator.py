"""A raw client that creates topics, deletes them or adds partitions, and the topics of each of its requests.

A topic's name is `prefix` and a running number of six digits. Deletion and growth need topics that exist before the
run under the same names: `topics_before` returns them.

**Source:** KIP-599: a mutation costs the partitions that it creates or deletes.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.clients.cluster_check import LoadRefusedError
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.raw.connected_client import ConnectedClient
from kafka_quotas.loadtest.clients.raw.connection import Address, InFlight, Leaders, RawConnection
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import MutationFlood, MutationKind
from kafka_quotas.wire.client.admin import (
    CreatePartitions,
    NewTopic,
    StrictCreateTopics,
    StrictDeleteTopics,
    TopicMutation,
)
from kafka_quotas.wire.client.request import read_answer
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES
from kafka_quotas.wire.protocol.api_table import ErrorCode, error_name

_BROKER_TIMEOUT_MS: Final = 30_000


class MutationPlan:
    """The requests of one flood, in order."""

    def __init__(self, flood: MutationFlood) -> None:
        if flood.kind is not MutationKind.CREATE and flood.total_topics is None:
            raise UsageError(
                f"a flood that is to {flood.kind.value} needs topics to be made first", hint="--topics 100"
            )
        self._flood = flood
        self._next = 0

    def topics_before(self) -> tuple[NewTopic, ...]:
        """Return the topics that must exist before the flood, with their partitions."""
        if self._flood.kind is MutationKind.CREATE:
            return ()
        partitions = self._flood.partitions_per_topic if self._flood.kind is MutationKind.DELETE else 1
        return tuple(self._topic(number, partitions) for number in range(self._flood.total_topics or 0))

    def following(self) -> tuple[NewTopic, ...]:
        """Return the topics of the next request, none once every one has been named, and advance past them."""
        flood, first = self._flood, self._next
        if flood.kind is MutationKind.PARTITIONS:
            topics, each = flood.total_topics or 0, flood.partitions_per_topic
            self._next += min(flood.topics_per_request, topics)
            rounds = (divmod(number, topics) for number in range(first, self._next))
            return tuple(self._topic(number, 1 + each * (before + 1)) for before, number in rounds)
        last = first + flood.topics_per_request
        if flood.total_topics is not None:
            last = min(last, flood.total_topics)
        self._next = max(last, first)
        partitions = 0 if flood.kind is MutationKind.DELETE else flood.partitions_per_topic
        return tuple(self._topic(number, partitions) for number in range(first, last))

    def request(self, topics: Sequence[NewTopic]) -> TopicMutation:
        """Return the request that creates, deletes or grows these topics."""
        flood = self._flood
        kinds: dict[MutationKind, type[TopicMutation]] = {
            MutationKind.CREATE: StrictCreateTopics,
            MutationKind.DELETE: StrictDeleteTopics,
            MutationKind.PARTITIONS: CreatePartitions,
        }
        return kinds[flood.kind](topics=topics, timeout_ms=_BROKER_TIMEOUT_MS, validate_only=flood.validate_only)

    @property
    def is_exhausted(self) -> bool:
        """Whether the requests have named every topic, which is never so where topics grow."""
        flood = self._flood
        return flood.kind is not MutationKind.PARTITIONS and self._next == flood.total_topics

    def _topic(self, number: int, partitions: int) -> NewTopic:
        return NewTopic(f"{self._flood.prefix}{number:06d}", partitions, self._flood.replication_factor)


_NOT_AUTHORIZED: Final[Mapping[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}


@dataclass(slots=True, kw_only=True)
class _Call:
    """One call of the application, with the topics that are not done, and its times in nanoseconds."""

    topics: Sequence[NewTopic]
    """Topics to ask for, at a retry only those that the quota refused."""
    intended_ns: int
    begun_ns: int
    deadline_ns: int
    """End of the API timeout, at which the call fails."""
    not_before_ns: int = 0
    """End of the throttle time, before which no retry is sent."""


class RawMutator(ConnectedClient):
    """One client that creates topics, deletes them or adds partitions to them."""

    def __init__(
        self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, leaders: Leaders, flood: MutationFlood
    ) -> None:
        super().__init__(plan, entity, clock, leaders)
        self._flood = flood
        self._mutations = MutationPlan(flood)
        self._again: deque[_Call] = deque()

    async def served(self) -> Mapping[Address, tuple[int, ...]]:
        return {await self.leaders.controller(access=self.access): ()}

    def send_due(self, now_ns: int) -> None:
        for late in [call for call in self._again if call.deadline_ns <= now_ns]:
            self._again.remove(late)
            self.recorder.failed(error_name(ErrorCode.THROTTLING_QUOTA_EXCEEDED), len(late.topics))
        while (call := self._ready(now_ns)) is not None:
            connection = self.free_connection(now_ns)
            if connection is None:
                self._again.appendleft(call)
                break
            self._send(connection, call, now_ns)
        if self._again:
            waits = (call.not_before_ns if call.not_before_ns > now_ns else call.deadline_ns for call in self._again)
            self.wake_at(min(waits), now_ns)
        if not self._mutations.is_exhausted:
            self.wake_when_due(now_ns)
        elif not self._again and not any(each.in_flight for each in self.connections):
            self.end()

    def size_of(self, request: InFlight) -> int:
        call: _Call = request.matter[0]
        return len(call.topics)

    def due_times(self, request: InFlight) -> Sequence[tuple[int, int]]:
        call: _Call = request.matter[0]
        return ((call.intended_ns, 1),)

    def end(self) -> None:
        """Stop sending now and count the topics that wait for a retry as unfinished."""
        super().end()
        self.unfinished += sum(len(call.topics) for call in self._again)
        for call in self._again:
            self.recorder.unanswered(intended_ns=call.intended_ns, sent_ns=call.begun_ns, until_ns=self.end_ns)
        self._again.clear()

    def _ready(self, now_ns: int) -> _Call | None:
        for _ in range(len(self._again)):
            call = self._again.popleft()
            if call.not_before_ns <= now_ns:
                return call
            self._again.append(call)
        if self._mutations.is_exhausted or self.pacer.due(now_ns, most=1) <= 0:
            return None
        topics = self._mutations.following()
        return _Call(
            topics=topics,
            intended_ns=self.take_arrival(now_ns, sent=len(topics)),
            begun_ns=now_ns,
            deadline_ns=now_ns + self._flood.api_timeout_ms * 1_000_000,
        )

    def _send(self, connection: RawConnection, call: _Call, now_ns: int) -> None:
        request = self._mutations.request(call.topics)
        connection.request(request, request.versions.highest, self._answered, now_ns=now_ns, matter=(call, request))

    def _answered(self, connection: RawConnection, frame: bytes, sent: InFlight) -> None:
        now_ns = time.monotonic_ns()
        call: _Call = sent.matter[0]
        request: TopicMutation = sent.matter[1]
        content = frame[FRAME_LENGTH_BYTES:]
        answer = read_answer(request, request.versions.highest, content, correlation_id=sent.correlation_id)
        made = sum(not outcome.error_code for outcome in answer.topics)
        cost = made * self._flood.partitions_per_topic
        self.recorder.response(now_ns, charged=cost, throttle_ms=answer.throttle_ms)
        if made:
            self.recorder.acknowledged(now_ns, records=made, size=cost)
        for outcome in answer.topics:
            if outcome.error_code not in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
                self._refused(outcome.name, outcome.error_code)
        throttled = {each.name for each in answer.topics if each.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        self._settle(call, throttled, now_ns)
        call.not_before_ns = now_ns + (answer.throttle_ms * 1_000_000 if self.entity.honor_throttle else 0)
        self.proceed(connection, now_ns, answer.throttle_ms)

    def _settle(self, call: _Call, throttled: set[str], now_ns: int) -> None:
        # A retry names only the topics with error 89: the others are done (KIP-599).
        call.topics = [topic for topic in call.topics if topic.name in throttled]
        if not call.topics:
            self.recorder.latency(intended_ns=call.intended_ns, sent_ns=call.begun_ns, acked_ns=now_ns)
        elif self._flood.retry_quota_violation:
            self._again.append(call)
        else:
            self.recorder.failed(error_name(ErrorCode.THROTTLING_QUOTA_EXCEEDED), len(call.topics))

    def _refused(self, topic: str, code: int) -> None:
        if code in _NOT_AUTHORIZED:
            hint = f"kafka-acls --add --{_NOT_AUTHORIZED[code]} .. --operation All --allow-principal User:NAME"
            self.give_up(LoadRefusedError(f"not authorized at {self.plan.bootstrap}: topic {topic}", hint=hint))
            return
        self.recorder.failed(error_name(code))
        if code == ErrorCode.NOT_CONTROLLER:
            self.moved()
