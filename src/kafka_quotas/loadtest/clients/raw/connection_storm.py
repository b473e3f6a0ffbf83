"""A storm of connections from one client: each is made, asked one question, and closed.

A connection counts as accepted when the broker answered on it. A broker whose limit is exceeded takes the TCP
connection all the same; then it waits before it reads from it (the limit of a listener or of the broker), or waits and
closes it (that of an IP address). The one shows as a late answer, the other as an end without any. Nobody announces a
throttle time; where the client has a quota, the wait takes its place.

**Source:** KIP-612; `Acceptor`, `ConnectionQuotas`, Kafka 4.1.
"""

import asyncio
import time
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.clients.raw.client import RawClient
from kafka_quotas.loadtest.clients.raw.connection import RawConnection
from kafka_quotas.loadtest.clients.raw.leaders import unreachable
from kafka_quotas.loadtest.clients.raw.login import opened
from kafka_quotas.wire.client.api_versions import VersionRequest

CLOSED: Final = "closed without an answer"
DELAYED_MS: Final = 100
"""From so long a wait on an answer counts as delayed: an unhurried broker answers within a few milliseconds."""
_VERSION: Final = 2
_MOST_AT_ONCE: Final = 1000  # connections of one client that are under way
_LOOK_S: Final = 0.002
_ANSWER_S: Final = 60.0


class RawStorm(RawClient):
    """One client that makes connections."""

    _under_way = 0

    async def live(self) -> None:
        """Nothing; the client did its part. What ends the run is in `error`."""
        await asyncio.sleep(self.start_in_s())
        most = self.entity.in_flight if self.pacer.is_unpaced else _MOST_AT_ONCE
        try:
            async with asyncio.TaskGroup() as group:
                while self.is_going_on:
                    now_ns = time.monotonic_ns()
                    self.count_dropped(now_ns)
                    for _ in range(self.pacer.due(now_ns, most=most - self._under_way)):
                        self._begin(group, now_ns)
                    await asyncio.sleep(_LOOK_S)
        finally:
            self.unfinished = self._under_way

    def _begin(self, group: asyncio.TaskGroup, now_ns: int) -> None:
        intended_ns = self.pacer.intended_ns(self.pacer.taken, now_ns)
        self.pacer.taken += 1
        self.recorder.sent += 1
        self._under_way += 1
        group.create_task(self._connect(intended_ns))

    async def _connect(self, intended_ns: int) -> None:
        """Nothing; one connection was made, asked and closed."""
        sent_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._ask()
        except KafkaQuotasError as error:
            self.give_up(error)
        except (ConnectionResetError, ConnectionAbortedError) as error:
            self._turned_away(sent_ns, error)
        except OSError as error:
            self.trouble = unreachable(self.plan.bootstrap, error)
            self.recorder.failed(self.trouble.message.rpartition(": ")[2])
        else:
            self._accepted(intended_ns, sent_ns)
        self._under_way -= 1
        self.pacer.answered(time.monotonic_ns())

    async def _ask(self) -> None:
        client_id = self.entity.name.client_id
        server = self.leaders.servers[self.recorder.sent % len(self.leaders.servers)]
        connection = await opened(server, access=self.access, client_id=client_id, connection=_alone)
        try:
            await connection.ask(VersionRequest(), _VERSION, client_id=client_id)
        finally:
            connection.close()

    def _accepted(self, intended_ns: int, sent_ns: int) -> None:
        now_ns = time.monotonic_ns()
        waited_ms = (now_ns - sent_ns) // 1_000_000
        is_delayed = self.entity.quota is not None and waited_ms >= DELAYED_MS
        self.recorder.response(now_ns, charged=1, throttle_ms=waited_ms if is_delayed else 0)
        self.recorder.acknowledged(now_ns, records=1, size=1)
        self.recorder.latency(intended_ns=intended_ns, sent_ns=sent_ns, acked_ns=now_ns)

    def _turned_away(self, sent_ns: int, error: ConnectionError) -> None:
        """Nothing; the end of a connection is a quota's doing where there is one, and a failure where not."""
        now_ns = time.monotonic_ns()
        if self.entity.quota is None:
            self.trouble = unreachable(self.plan.bootstrap, error)
            self.recorder.failed(CLOSED)
        else:
            self.recorder.response(now_ns, charged=0, throttle_ms=max(1, (now_ns - sent_ns) // 1_000_000))


def _alone() -> RawConnection:
    """A connection for one question."""
    return RawConnection(on_lost=lambda _connection, _error: None, on_room=lambda: None)
