"""The base of all raw clients of a run, and of those that keep their connections.

Contract: one event loop runs all raw clients. `pump` sends what is due and can be sent. It runs when an arrival is due,
after a response, and when a connection is ready. The client reopens connections that end, and resends nothing: what was
in flight counts as failed. Only with `request.timeout.ms` it gives up a connection whose answer is late, as Kafka's own
clients do, and a producer retries what was in flight on it.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.clients.cluster_check import LoadRefusedError, unreachable
from kafka_quotas.loadtest.clients.engine import LoadClient, RunClock
from kafka_quotas.loadtest.clients.raw.connection import (
    LEADER_MOVED,
    Address,
    InFlight,
    Leaders,
    RawConnection,
    client_access,
    opened,
)
from kafka_quotas.loadtest.plan.plan import ClientLoad, LoadPlan
from kafka_quotas.loadtest.plan.workload import Loop
from kafka_quotas.wire.protocol.api_table import ErrorCode, error_name

CONNECTION_LOST: Final = "connection lost"
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_CONNECTING_NS: Final = 200_000_000
_CONNECTED_EVERY_NS: Final = 2_000_000
_LATE_LOOK_S: Final = 0.05
_GATHER_NS: Final = 2_000_000  # the client sends arrivals that are due within it together


def request_timeout_ns(properties: Mapping[str, str]) -> int:
    """Return how long a client waits for an answer, 0 for as long as it takes."""
    timeout = properties.get("request.timeout.ms", "0")
    if not timeout.isdecimal():
        raise UsageError(f"request.timeout.ms is not a number of milliseconds: {timeout!r}", hint="for example 30000")
    return int(timeout) * 1_000_000


def head_start_ns(clients: int) -> int:
    """Return how long before the start clients begin to connect, of which this many are still to come."""
    return _CONNECTING_NS + clients * _CONNECTED_EVERY_NS


class RawClient(LoadClient, ABC):
    """One raw client of a run, whose whole life is `live`, in the event loop of all of them."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, leaders: Leaders) -> None:
        super().__init__(plan, entity, clock)
        self.leaders = leaders
        self.access = client_access(plan, entity)

    @abstractmethod
    async def live(self) -> None:
        """Put the client's load on the target until its end, with the error that ends the run in `error`."""

    def give_up(self, error: KafkaQuotasError) -> None:
        """End the run with this error, unless the client already has one."""
        self.error = self.error or error

    def end(self) -> None:
        """Stop sending now."""
        self.end_ns = min(self.end_ns, time.monotonic_ns())


class ConnectedClient(RawClient):
    """One raw client that keeps its connections."""

    def __init__(self, plan: LoadPlan, entity: ClientLoad, clock: RunClock, leaders: Leaders) -> None:
        super().__init__(plan, entity, clock, leaders)
        self.most_in_flight = 1 if entity.loop is Loop.CLOSED else entity.in_flight
        self.connections: dict[RawConnection, tuple[int, ...]] = {}
        """Open connections and the partitions that each serves."""
        self.timeout_ns = request_timeout_ns(plan.properties_of(entity))
        self._moved: asyncio.Event = asyncio.Event()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ns = 0
        self._turn = 0

    def pump(self) -> None:
        """Send what is due while the client takes part."""
        now_ns = time.monotonic_ns()
        if now_ns < self.start_ns:
            self.wake_at(self.start_ns, now_ns)
        elif now_ns < self.end_ns and self.error is None:
            if not self.pacer.is_unpaced:  # as fast as possible nothing is ever late
                self.count_dropped(now_ns)
            self.send_due(now_ns)

    @abstractmethod
    def send_due(self, now_ns: int) -> None:
        """Send what is due, on the connections that take a request."""

    def size_of(self, request: InFlight) -> int:  # noqa: ARG002 - most requests are alike
        """Return the records, requests or topics that a request in flight counts as."""
        return 1

    def due_times(self, request: InFlight) -> Sequence[tuple[int, int]]:
        """Return when the arrivals of a request in flight were due, each time with their number."""
        return ((request.matter, 1),)

    def abandoned(self, connection: RawConnection) -> None:
        """Count the requests on an ended connection as failed, or as unfinished once the run is over."""
        left = list(connection.in_flight)
        connection.in_flight.clear()
        count = sum(map(self.size_of, left))
        if count and self.is_active:
            self.recorder.failed(CONNECTION_LOST, count)
        else:
            self.count_unfinished(left)

    def count_unfinished(self, requests: Iterable[InFlight]) -> None:
        """Record requests without an answer at the end of the client's part."""
        for request in requests:
            self.unfinished += self.size_of(request)
            for intended_ns, records in self.due_times(request):
                self.recorder.unanswered(
                    intended_ns=intended_ns, sent_ns=request.sent_ns, until_ns=self.end_ns, count=records
                )

    def proceed(self, connection: RawConnection, now_ns: int, throttle_ms: int) -> None:
        """Send what is due after a response, here only after the throttle time if the client honours it."""
        # Since KIP-219 a broker responds at once, and a client that honours the throttle time waits before it sends.
        if throttle_ms > 0 and self.entity.honor_throttle:
            connection.blocked_until_ns = now_ns + throttle_ms * 1_000_000
        self.pacer.answered(now_ns)
        self.pump()

    def failed(self, code: int, count: int = 1) -> None:
        """Record an error of the topic, and look up its leaders again where they have moved."""
        self.recorder.failed(error_name(code), count)
        if code in LEADER_MOVED:
            self.moved()

    def refused(self, code: int, count: int = 1, *, operation: str) -> None:
        """Record an error of the topic, or end the run where the client lacks the right to this operation."""
        if code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.failed(code, count)
            return
        problem = f"not authorized at {self.plan.bootstrap}: {operation} on topic {self.entity.topic} is missing"
        hint = f"kafka-acls --add --topic NAME --operation {operation} --allow-principal User:NAME"
        self.give_up(LoadRefusedError(problem, hint=hint))

    async def live(self) -> None:
        """Keep connections to the brokers of the load until the client's end, and follow the topic's leaders."""
        # One after the other: a broker leaves no more than some 50 connections waiting to be taken.
        ahead_ns = head_start_ns(len(self.plan.entities) - self.index)
        await asyncio.sleep(max(self.start_in_s() - ahead_ns / 1e9, 0.0))
        while self.is_active:
            try:
                served = await self.served()
            except KafkaQuotasError as error:
                self.error = error
                return
            except OSError as error:
                self.trouble = unreachable(self.plan.bootstrap, error)
                await asyncio.sleep(_LONGEST_PAUSE_S)
                continue
            self._moved.clear()
            async with asyncio.TaskGroup() as group:
                slots = [(address, part) for address, all_ in served.items() for part in self.shares(all_)]
                keepers = [group.create_task(self._keep(*slot, served)) for slot in slots]
                await self._moved.wait()
                for keeper in keepers:
                    keeper.cancel()

    async def ready(self, connection: RawConnection) -> None:
        """Prepare a new connection before it takes load, with requests of the client's own where it needs any."""

    async def served(self) -> Mapping[Address, tuple[int, ...]]:
        """Return the brokers to connect to with the partitions of each: those of the topic, by leader."""
        served: dict[Address, list[int]] = {}
        found = await self.leaders.of(self.entity.topic, access=self.access)
        for partition, address in sorted(found.items()):
            served.setdefault(address, []).append(partition)
        return {address: tuple(partitions) for address, partitions in served.items()}

    def moved(self) -> None:
        """Look up the topic's leaders again and reopen all connections there."""
        self.leaders.forget(self.entity.topic)
        self._moved.set()

    def end(self) -> None:
        """Stop sending now."""
        super().end()
        if self._wake is not None:
            self._wake.cancel()

    def free_connection(self, now_ns: int) -> RawConnection | None:
        """Return the next connection that takes a request now, round robin, or None if all have to wait."""
        connections = list(self.connections)
        for step in range(len(connections)):
            connection = connections[(self._turn + step) % len(connections)]
            if self.is_free(connection, now_ns):
                self._turn = (self._turn + step + 1) % len(connections)
                return connection
        return None

    def is_free(self, connection: RawConnection, now_ns: int) -> bool:
        """Return whether a connection takes a request now, or run `pump` at the end of its throttle time."""
        # A response, or room in the socket's buffer, runs `pump` again without a timer.
        if len(connection.in_flight) >= self.most_in_flight or connection.is_full:
            return False
        if connection.blocked_until_ns > now_ns:
            self.wake_at(connection.blocked_until_ns, now_ns)
            return False
        return True

    def wake_when_due(self, now_ns: int) -> None:
        """Schedule `pump` for the next arrival."""
        if not self.pacer.is_unpaced and self.connections:
            self.wake_at(max(self.pacer.next_ns(now_ns), now_ns + _GATHER_NS), now_ns)

    def wake_at(self, instant_ns: int, now_ns: int) -> None:
        """Schedule `pump` for an instant, unless it already runs before that."""
        if self._wake is not None:
            if now_ns < self._wake_ns <= instant_ns:
                return
            self._wake.cancel()
        self._wake_ns = instant_ns
        self._wake = asyncio.get_running_loop().call_later(max(0, instant_ns - now_ns) / 1e9, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self.pump()

    def shares(self, partitions: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the partitions of each connection to one broker: all of them for every connection."""
        return [partitions] * self.entity.connections

    async def _keep(
        self, address: Address, partitions: tuple[int, ...], served: Mapping[Address, tuple[int, ...]]
    ) -> None:
        pause_s = _FIRST_PAUSE_S
        while self.is_active:
            lost = asyncio.Event()
            try:
                connection = await self._connected(address, lost)
            except KafkaQuotasError as error:
                self.give_up(error)
                return
            except OSError as error:
                self.trouble = unreachable(self.plan.bootstrap, error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                if await self._is_elsewhere(served):
                    self._moved.set()
                    return
                continue
            pause_s = _FIRST_PAUSE_S
            try:
                self.connections[connection] = partitions
                self.pump()
                await self._ended(connection, lost)
            finally:
                self.connections.pop(connection, None)
                self.abandoned(connection)
                connection.close()

    async def _ended(self, connection: RawConnection, lost: asyncio.Event) -> None:
        while self.timeout_ns and not lost.is_set():
            if connection.in_flight and time.monotonic_ns() >= connection.in_flight[0].sent_ns + self.timeout_ns:
                return
            await asyncio.sleep(_LATE_LOOK_S)
        await lost.wait()

    async def _connected(self, address: Address, lost: asyncio.Event) -> RawConnection:
        def left(connection: RawConnection, error: Exception | None) -> None:
            self.connections.pop(connection, None)
            if isinstance(error, KafkaQuotasError):
                self.give_up(error)
            elif isinstance(error, OSError):
                self.trouble = unreachable(self.plan.bootstrap, error)
            lost.set()

        def fresh() -> RawConnection:
            return RawConnection(on_lost=left, on_room=self.pump, broker=self.leaders.number_of(address))

        connection = await opened(address, access=self.access, connection=fresh)
        try:
            await self.ready(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _is_elsewhere(self, served: Mapping[Address, tuple[int, ...]]) -> bool:
        self.leaders.forget(self.entity.topic)
        try:
            return await self.served() != served
        except OSError:
            return False
        except KafkaQuotasError as error:
            self.give_up(error)
            return True

    def give_up(self, error: KafkaQuotasError) -> None:
        """End the run with this error, unless the client already has one, and stop all connections."""
        super().give_up(error)
        self._moved.set()
