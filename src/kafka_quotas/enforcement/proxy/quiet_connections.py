"""Connections on which nothing moves: closed when that has lasted too long, or when a peer turns out to be gone.

A client that hung up while its broker took no bytes is noticed at the second look, within a minute.

Throttled clients are not idle, because the daemon keeps them waiting. Invariant: connections are looked at in slices,
so the event loop serves others in between, however many there are.
**Source:** `Selector.IdleExpiryManager` (4.x): `connections.max.idle.ms`.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.enforcement.proxy.proxied_connection import ProxiedConnection
from kafka_quotas.enforcement.proxy.transport import UNACKNOWLEDGED_MS
from kafka_quotas.enforcement.session.gathering import GatherBudget
from kafka_quotas.enforcement.telemetry.counters import Counters

LOOKS: Final = 20
"""Looks per shortest idle time."""
LONGEST_PAUSE_S: Final = 30.0
_GATHERING_PAUSE_S: Final = 1.0
SLICE: Final = 100
"""Connections looked at before others get their turn: a millisecond or two, where the kernel is asked about each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietConnections:
    """The periodic check of open connections for idle ones and lost peers."""

    connections: Callable[[], Iterable[ProxiedConnection]]
    """Returns all that are open."""
    clock: Clock
    counters: Counters

    async def watch(self, shortest_idle_ms: Callable[[], int | None]) -> None:
        """Look at all connections until cancelled, more often the shorter the idle times may be."""
        while True:
            idle_ms = shortest_idle_ms()
            await asyncio.sleep(LONGEST_PAUSE_S if idle_ms is None else min(LONGEST_PAUSE_S, idle_ms / LOOKS / 1000))
            for number, connection in enumerate(list(self.connections())):
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                self.look(connection, self.clock.now_ms())

    async def watch_gathering(self, budget: GatherBudget) -> None:
        """Report to connections that keep memory for too long that others wait for it, until cancelled."""
        while True:
            await asyncio.sleep(_GATHERING_PAUSE_S)
            for share in budget.overdue(self.clock.now_ms()):
                share.on_overdue()

    def look(self, connection: ProxiedConnection, now_ms: int) -> None:
        """Record whether anything moved on a connection since the last look, and end it where it is due."""
        if connection.has_moved:
            connection.has_moved = False
            connection.quiet_since_ms = now_ms
            return
        connection.leave_absent_client()
        quiet_ms = now_ms - connection.quiet_since_ms
        if connection.max_idle_ms is not None and quiet_ms >= connection.max_idle_ms:
            self.counters.connections_expired += connection.expire()
        if quiet_ms >= UNACKNOWLEDGED_MS:
            connection.leave_lost_peer()
