"""Raw clients that flood their target: one with requests of one kind, another one with connections.

Every response is charged as 1. It is an acknowledgement whatever its error, except for Produce and Fetch: there an
error is a failure, and in a flood of unauthorised requests the lack of an error is.

The client builds one request per flood, and only the correlation id differs from one request to the next.
"""

import asyncio
import time
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.clients.cluster_check import unreachable
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.raw.connected_client import ConnectedClient, RawClient
from kafka_quotas.loadtest.clients.raw.connection import (
    CORRELATION_ID_AT,
    Address,
    InFlight,
    Leaders,
    RawConnection,
    asked,
)
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import RequestFlood
from kafka_quotas.wire.client.admin import EndOffset
from kafka_quotas.wire.client.probes import Target, small_probes, topic_check
from kafka_quotas.wire.client.records import (
    FetchAnswer,
    FetchRequest,
    ProduceAnswer,
    ProduceRequest,
    read_records_answer,
    single_record_batch,
)
from kafka_quotas.wire.client.request import ClientRequest, VersionRequest, request_frame
from kafka_quotas.wire.proxying.throttle_time import read_throttle_ms, throttle_offset

_CORRELATION_ID: Final = Struct(">i")
_NOWHERE: Final = Target("", 0, "")
NEEDS_TOPIC: Final = frozenset({"Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "CreateTopics"})
FLOOD_APIS: Final = tuple(
    sorted(("Produce", "Fetch", "CreateTopics", *(probe.name for probe in small_probes(_NOWHERE))))
)
"""The APIs that floods can be made of, by Kafka's names."""


class FloodFrame:
    """A request of a flood, and its frame: a Fetch starts at `end_offset`, a Produce has one record."""

    def __init__(
        self, flood: RequestFlood, *, client_id: str | None, topic: str, end_offset: int, record_size: int
    ) -> None:
        target = Target(topic, end_offset, "kafka-quotas-flood")
        self.request: ClientRequest[Any]
        match flood.api:
            case "Fetch":
                self.request = FetchRequest(
                    topic=topic,
                    offsets={0: end_offset},
                    max_wait_ms=flood.max_wait_ms,
                    min_bytes=flood.min_bytes,
                    max_bytes=flood.max_bytes,
                )
            case "Produce":
                self.request = ProduceRequest(topic=topic, records=single_record_batch(bytes(record_size), now_ms=0))
            case "CreateTopics":
                self.request = topic_check(target)
            case _:
                self.request = next(each for each in small_probes(target) if each.name == flood.api)
        self.version = self.request.versions.highest
        self._frame = bytearray(request_frame(self.request, self.version, correlation_id=0, client_id=client_id))

    def numbered(self, correlation_id: int) -> bytes:
        """Return the frame with a correlation id."""
        _CORRELATION_ID.pack_into(self._frame, CORRELATION_ID_AT, correlation_id)
        return bytes(self._frame)


def check_flood(flood: RequestFlood, *, topic: str) -> None:
    """Refuse an API that floods do not support, and a flood without the topic that it needs."""
    if flood.api not in FLOOD_APIS:
        raise UsageError(f"no flood of {flood.api} requests is known", hint=f"one of {', '.join(FLOOD_APIS)}")
    if flood.api in NEEDS_TOPIC and not topic:
        raise UsageError(f"a flood of {flood.api} requests needs a topic", hint="name one with --topic")
    if flood.unauthorised and not topic:
        raise UsageError(
            "a flood of unauthorised requests needs a topic", hint="--topic names one that the client may not touch"
        )


_SENDS_IN_A_ROW: Final = 64
_LIST_OFFSETS_VERSION: Final = 2
NOT_REFUSED: Final = "was not refused"


class RawFlood(ConnectedClient):
    """One client that floods its target with requests."""

    def __init__(
        self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, leaders: Leaders, flood: RequestFlood
    ) -> None:
        super().__init__(plan, entity, clock, leaders)
        check_flood(flood, topic=entity.topic)
        self._flood = flood
        self._end_offset = 0
        self._request = self._made()

    async def served(self) -> Mapping[Address, tuple[int, ...]]:
        """Return the broker to flood: the leader of partition 0 if there is a topic, else the first server.

        A flood of unauthorised requests goes to the first server as well, for the client may not describe the topic.
        """
        if self.entity.topic and not self._flood.unauthorised:
            found = await self.leaders.of(self.entity.topic, access=self.access)
            return {found[0]: (0,)}
        return {self.leaders.servers[0]: (0,)}

    async def ready(self, connection: RawConnection) -> None:
        if isinstance(self._request.request, FetchRequest) and not self._flood.unauthorised:
            request = EndOffset(topic=self.entity.topic, partition=0)
            self._follow((await connection.ask(request, _LIST_OFFSETS_VERSION)).offset)

    def send_due(self, now_ns: int) -> None:
        for _ in range(self.pacer.due(now_ns, most=_SENDS_IN_A_ROW)):
            connection = self.free_connection(now_ns)
            if connection is None:
                return
            intended_ns, correlation_id = self.take_arrival(now_ns), connection.next_correlation_id()
            frame = self._request.numbered(correlation_id)
            connection.send(frame, InFlight(correlation_id, now_ns, self._answered, intended_ns))
        self.wake_when_due(now_ns)

    def _answered(self, connection: RawConnection, frame: bytes, request: InFlight) -> None:
        now_ns = time.monotonic_ns()
        offset = throttle_offset(self._request.request.api_key, self._request.version, frame)
        throttle_ms = 0 if offset is None else read_throttle_ms(frame, offset)
        failure = self._failure(frame)
        intended_ns, sent_ns, broker = request.matter, request.sent_ns, connection.broker
        if not failure:
            self.recorder.answered(
                now_ns, throttle_ms=throttle_ms, broker=broker, intended_ns=intended_ns, sent_ns=sent_ns
            )
        else:
            self.recorder.response(now_ns, charged=1, throttle_ms=throttle_ms, broker=broker)
            self.recorder.latency(acked_ns=now_ns, intended_ns=intended_ns, sent_ns=sent_ns)
            if isinstance(failure, str):
                self.recorder.failed(failure)
            else:
                self.failed(failure)
        self.proceed(connection, now_ns, throttle_ms)

    def _failure(self, frame: bytes) -> int | str:
        if self._flood.api not in ("Produce", "Fetch"):
            return 0
        answer: ProduceAnswer | FetchAnswer = read_records_answer(self._request.request, frame)
        code = answer.error_code
        if isinstance(answer, FetchAnswer):
            if not answer.partitions and not code:
                return 0  # a broker empties the response when a quota is exceeded, whatever the request
            code = code or max(each.error_code for each in answer.partitions)
            self._follow(max((each.high_watermark for each in answer.partitions), default=0))
        if self._flood.unauthorised:
            return 0 if code else NOT_REFUSED
        return code

    def _follow(self, end_offset: int) -> None:
        if end_offset > self._end_offset:
            self._end_offset = end_offset
            self._request = self._made()

    def _made(self) -> FloodFrame:
        entity = self.entity
        return FloodFrame(
            self._flood,
            client_id=entity.name.client_id,
            topic=entity.topic,
            end_offset=self._end_offset,
            record_size=entity.record_size,
        )


CLOSED: Final = "closed without an answer"
DELAYED_MS: Final = 100
"""Shortest wait that counts as a delay: a broker that does not throttle responds within a few milliseconds."""
_VERSION: Final = 2
_MOST_AT_ONCE: Final = 1000  # connections of one client at the same time
_LOOK_S: Final = 0.002
_ANSWER_S: Final = 60.0


class RawStorm(RawClient):
    """One client that opens connections at its schedule's rate."""

    _open = 0
    _turned_away_count = 0

    async def live(self) -> None:
        await asyncio.sleep(self.start_in_s())
        most = self.entity.in_flight if self.pacer.is_unpaced else _MOST_AT_ONCE
        try:
            async with asyncio.TaskGroup() as group:
                while self.is_active:
                    now_ns = time.monotonic_ns()
                    self.count_dropped(now_ns)
                    for _ in range(self.pacer.due(now_ns, most=most - self._open)):
                        intended_ns = self.take_arrival(now_ns)
                        self._open += 1
                        # The servers take turns by the connections begun: several are before the first task runs.
                        server = self.leaders.servers[self.recorder.sent % len(self.leaders.servers)]
                        group.create_task(self._connect(server, intended_ns))
                    await asyncio.sleep(_LOOK_S)
        finally:
            self.unfinished = self._open + self._turned_away_count

    async def _connect(self, server: Address, intended_ns: int) -> None:
        sent_ns = time.monotonic_ns()
        try:
            await asked(server, VersionRequest(), _VERSION, access=self.access, within_s=_ANSWER_S)
        except KafkaQuotasError as error:
            self.give_up(error)
        except (ConnectionResetError, ConnectionAbortedError) as error:
            self._turned_away(sent_ns, error)
        except asyncio.CancelledError:  # the run is over
            self.recorder.unanswered(intended_ns=intended_ns, sent_ns=sent_ns, until_ns=self.end_ns)
            raise
        except OSError as error:
            self.trouble = unreachable(self.plan.bootstrap, error)
            self.recorder.failed(self.trouble.message.rpartition(": ")[2])
        else:
            self._accepted(intended_ns, sent_ns)
        self._open -= 1
        self.pacer.answered(time.monotonic_ns())

    def _accepted(self, intended_ns: int, sent_ns: int) -> None:
        now_ns = time.monotonic_ns()
        waited_ms = (now_ns - sent_ns) // 1_000_000
        # The broker delays a connection over its limit without a throttle time in any response (KIP-612).
        is_delayed = self.entity.quota is not None and waited_ms >= DELAYED_MS
        throttle_ms = waited_ms if is_delayed else 0
        self.recorder.answered(now_ns, throttle_ms=throttle_ms, intended_ns=intended_ns, sent_ns=sent_ns)

    def _turned_away(self, sent_ns: int, error: ConnectionError) -> None:
        now_ns = time.monotonic_ns()
        if self.entity.quota is None:
            self.trouble = unreachable(self.plan.bootstrap, error)
            self.recorder.failed(CLOSED)
        else:
            self._turned_away_count += 1
            self.recorder.response(now_ns, charged=0, throttle_ms=max(1, (now_ns - sent_ns) // 1_000_000))
