"""A storm of connections from one client: it opens each, sends one request on it, and closes it.

A connection counts as accepted when the broker responds on it. A broker whose limit is exceeded takes the TCP
connection all the same. It then delays its first read (the limit of a listener or of the broker), or waits and closes
the connection (the limit of an IP address). The first shows as a late response, the second as an end without any. No
broker reports a throttle time for it, so the wait counts as one where the client has a quota.

**Source:** KIP-612; `Acceptor`, `ConnectionQuotas`, Kafka 4.1.
"""

import asyncio
import time
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.clients.raw.connected_client import RawClient
from kafka_quotas.loadtest.clients.raw.leaders import Address, unreachable
from kafka_quotas.loadtest.clients.raw.login import opened
from kafka_quotas.wire.client.request import VersionRequest

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
        """Open connections until the client's end, with the error that ends the run in `error`."""
        await asyncio.sleep(self.start_in_s())
        most = self.entity.in_flight if self.pacer.is_unpaced else _MOST_AT_ONCE
        try:
            async with asyncio.TaskGroup() as group:
                while self.is_active:
                    now_ns = time.monotonic_ns()
                    self.count_dropped(now_ns)
                    for _ in range(self.pacer.due(now_ns, most=most - self._open)):
                        self._begin(group, now_ns)
                    await asyncio.sleep(_LOOK_S)
        finally:
            self.unfinished = self._open + self._turned_away_count

    def _begin(self, group: asyncio.TaskGroup, now_ns: int) -> None:
        intended_ns = self.pacer.intended_ns(self.pacer.taken, now_ns)
        self.pacer.taken += 1
        self.recorder.sent += 1
        self._open += 1
        # The servers take turns by the connections begun, because several are begun before the first task runs.
        server = self.leaders.servers[self.recorder.sent % len(self.leaders.servers)]
        group.create_task(self._connect(server, intended_ns))

    async def _connect(self, server: Address, intended_ns: int) -> None:
        sent_ns = time.monotonic_ns()
        try:
            await self._ask(server)
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

    async def _ask(self, server: Address) -> None:
        client_id = self.entity.name.client_id
        connection = await opened(server, access=self.access, client_id=client_id)
        try:
            await connection.ask(VersionRequest(), _VERSION, client_id=client_id, within_s=_ANSWER_S)
        finally:
            connection.close()

    def _accepted(self, intended_ns: int, sent_ns: int) -> None:
        now_ns = time.monotonic_ns()
        waited_ms = (now_ns - sent_ns) // 1_000_000
        # The broker delays a connection over its limit without a throttle time in any response (KIP-612).
        is_delayed = self.entity.quota is not None and waited_ms >= DELAYED_MS
        self.recorder.answered(
            now_ns,
            charged=1,
            throttle_ms=waited_ms if is_delayed else 0,
            broker=0,
            records=1,
            size=1,
            intended_ns=intended_ns,
            sent_ns=sent_ns,
        )

    def _turned_away(self, sent_ns: int, error: ConnectionError) -> None:
        """Record a connection that the broker closed: as throttled if there is a quota, otherwise as failed."""
        now_ns = time.monotonic_ns()
        if self.entity.quota is None:
            self.trouble = unreachable(self.plan.bootstrap, error)
            self.recorder.failed(CLOSED)
        else:
            self._turned_away_count += 1
            self.recorder.response(now_ns, charged=0, throttle_ms=max(1, (now_ns - sent_ns) // 1_000_000))
