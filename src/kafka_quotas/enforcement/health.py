"""Whether the daemon lives, and whether clients should be sent to it.

Alive is a daemon that answers at all. Ready is one that takes connections and reaches a broker; a store that is lost
makes it no less ready, for its last content stays in force.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.status import DaemonStatus

PROBE_S: Final = 2.0
"""How long a broker gets to take a connection."""
KEPT_S: Final = 1.0
"""How long a probe's result holds: brokers are not connected to more often than that."""

Probe: TypeAlias = Callable[[Address], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether clients should come, and why not; the store's trouble (None: none) is told beside."""

    ready: bool
    draining: bool
    upstream_reachable: bool
    store_trouble: str | None
    store_age_ms: int

    def to_json(self) -> bytes:
        """The fields as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


class Health:
    """Answers from the status, and from a connection to the upstream that is tried when somebody asks."""

    def __init__(
        self, status: Callable[[], DaemonStatus], upstream: Callable[[], Address], *, probe: Probe | None = None
    ) -> None:
        self._status = status
        self._upstream = upstream
        self._probe = probe or takes_connections
        self._probed: asyncio.Task[bool] | None = None
        self._probed_s = 0.0

    async def readiness(self) -> Readiness:
        """The readiness at this moment."""
        status = self._status()
        reachable = False if status.draining else await self._reachable()
        return Readiness(
            ready=reachable and not status.draining,
            draining=status.draining,
            upstream_reachable=reachable,
            store_trouble=status.store.trouble,
            store_age_ms=status.store.age_ms,
        )

    async def _reachable(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._probed is None or (self._probed.done() and loop.time() - self._probed_s > KEPT_S):
            self._probed_s = loop.time()
            self._probed = loop.create_task(_awaited(self._probe(self._upstream())))
        return await asyncio.shield(self._probed)


async def takes_connections(address: Address) -> bool:
    """Whether something at an address takes a connection in time."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (TimeoutError, OSError):
        return False
    writer.close()
    return True


async def _awaited(answer: Awaitable[bool]) -> bool:
    return await answer
