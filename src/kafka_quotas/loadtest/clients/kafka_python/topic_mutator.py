"""A kafka-python admin client that floods a cluster with changes of topics.

The library neither retries topics that a quota refuses (error 89) nor reports the throttle time, but waits for it
before the next request on that connection. This client retries them as KIP-599's admin client does, one call at a
time.
"""

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.kafka_python.client import KafkaPythonClient
from kafka_quotas.loadtest.clients.kafka_python.settings import request_timeout_ms
from kafka_quotas.loadtest.clients.mutation_plan import MutationPlan
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import MutationFlood, MutationKind
from kafka_quotas.wire.client.topics import NewTopic
from kafka_quotas.wire.protocol.error_code import ErrorCode, error_name

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_REQUEST_TIMEOUT_MS: Final = 60_000
_GRACE_MS: Final = 20  # for the library's own timer, which ends the throttle time in a thread of its own


class KafkaPythonMutator(KafkaPythonClient):
    """One kafka-python admin client of a run."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, flood: MutationFlood) -> None:
        super().__init__(plan, entity, clock)
        self._flood = flood
        self._mutations = MutationPlan(flood)
        self._not_before_ns = 0
        self._timeout_ms = request_timeout_ms(plan, entity, default_ms=_REQUEST_TIMEOUT_MS)

    def opened(self) -> "KafkaAdminClient":
        """Open the library's admin client."""
        from kafka import KafkaAdminClient  # noqa: PLC0415 - only its own clients load the library

        return KafkaAdminClient(**self.settings, request_timeout_ms=self._timeout_ms)

    def work(self, client: "KafkaAdminClient", stop: threading.Event) -> None:
        """Change topics until every topic has been in a request or the run ends."""
        while self.takes_part(stop) and not self._mutations.is_exhausted:
            now_ns = time.monotonic_ns()
            self.count_dropped(now_ns)
            if self.pacer.due(now_ns, most=1) > 0:
                self._call(client, stop)
                self.pacer.answered(time.monotonic_ns())
            else:
                self.wait(stop)

    def closed(self, client: "KafkaAdminClient") -> None:
        """Close the admin client."""
        client.close()

    def _call(self, client: "KafkaAdminClient", stop: threading.Event) -> None:
        """Change the topics of one call, and retry those that the quota refuses until the API timeout."""
        begun_ns = time.monotonic_ns()
        intended_ns = self.pacer.next_ns(begun_ns)
        deadline_ns = begun_ns + self._flood.api_timeout_ms * 1_000_000
        topics = self._mutations.following()
        self.pacer.taken += 1
        self.recorder.sent += len(topics)
        while topics:
            if not self._await_throttle_end(stop):
                self.unfinished += len(topics)
                return
            topics, wait_ms = self._asked(client, topics)
            now_ns = time.monotonic_ns()
            self._not_before_ns = now_ns + (wait_ms + _GRACE_MS) * 1_000_000
            if not topics:
                self.recorder.latency(intended_ns=intended_ns, sent_ns=begun_ns, acked_ns=now_ns)
                return
            if not self._flood.retry_quota_violation or self._not_before_ns >= deadline_ns:
                self.recorder.failed(error_name(ErrorCode.THROTTLING_QUOTA_EXCEEDED), len(topics))
                return

    def _await_throttle_end(self, stop: threading.Event) -> bool:
        """Wait for the last throttle time's end, and return whether the client still takes part then."""
        while time.monotonic_ns() < self._not_before_ns and self.takes_part(stop):
            self.wait(stop, until_ns=self._not_before_ns)
        return self.takes_part(stop)

    def _asked(self, client: "KafkaAdminClient", topics: tuple[NewTopic, ...]) -> tuple[tuple[NewTopic, ...], int]:
        """Send one attempt, record its outcome, and return the refused topics and the throttle time in ms."""
        codes = self._retried(client, topics)
        throttle_ms = self.throttles.taken()
        made = sum(not code for code in codes.values())
        cost = made * self._mutations.cost_per_topic
        now_ns = time.monotonic_ns()
        self.recorder.response(now_ns, charged=cost, throttle_ms=max(throttle_ms, default=0))
        if made:
            self.recorder.acknowledged(now_ns, records=made, size=cost)
        for code in codes.values():
            if code not in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
                self.recorder.failed(error_name(code))
        # KIP-599: a retry names only the topics with error 89; the others are done.
        refused = tuple(topic for topic in topics if codes.get(topic.name) == ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        return refused, max(throttle_ms, default=0)

    def _retried(self, client: "KafkaAdminClient", topics: tuple[NewTopic, ...]) -> dict[str, int]:
        """Send one attempt as soon as the library's connection is ready, and return each topic's error code."""
        from kafka.errors import NodeNotReadyError  # noqa: PLC0415 - loaded by now

        deadline_ns = time.monotonic_ns() + self._timeout_ms * 1_000_000
        while True:
            try:
                return self._answered(client, topics)
            except NodeNotReadyError:
                if time.monotonic_ns() > deadline_ns:
                    raise
                time.sleep(_GRACE_MS / 1000)

    def _answered(self, client: "KafkaAdminClient", topics: tuple[NewTopic, ...]) -> dict[str, int]:
        asked: Any = client
        flood = self._flood
        if flood.kind is MutationKind.PARTITIONS:
            counts = {topic.name: topic.partitions for topic in topics}
            grown = asked.create_partitions(counts, validate_only=flood.validate_only, raise_errors=False)
            return {each.name: each.error_code for each in grown.results}
        if flood.kind is MutationKind.CREATE:
            wanted = {
                topic.name: {"num_partitions": topic.partitions, "replication_factor": topic.replication_factor}
                for topic in topics
            }
            answer = asked.create_topics(wanted, validate_only=flood.validate_only, raise_errors=False)
        else:
            answer = asked.delete_topics([topic.name for topic in topics], raise_errors=False)
        return {each["name"]: each["error_code"] for each in answer["topics"]}
