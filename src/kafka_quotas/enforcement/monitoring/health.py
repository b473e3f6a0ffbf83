"""Whether the daemon is alive, and whether load balancers should send clients to it.

Alive is a daemon that answers at all. Ready is one that takes connections and reaches any broker; a store that is lost
makes it no less ready, for its last content stays in force.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.proxy.upstream_health import UpstreamHealth
from kafka_quotas.enforcement.telemetry.status import StoreRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The answer to a readiness probe: whether clients should connect, and why not.

    The state of the store is reported beside and does not count.
    """

    ready: bool
    draining: bool
    upstream_reachable: bool
    store_trouble: str | None
    """Error of the last access to the store, None without one."""
    store_age_ms: int
    """Time since the store's content was last confirmed."""

    def to_json(self) -> bytes:
        """Return the fields as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


class Health:
    """The readiness of the daemon, from its state and from attempts to connect to brokers on request."""

    def __init__(
        self,
        state: Callable[[], tuple[bool, StoreRow]],
        upstreams: Callable[[], Sequence[Address]],
        *,
        health: UpstreamHealth,
    ) -> None:
        """Keep the sources of the readiness without trying any broker.

        Args:
            state: Returns whether the daemon is draining, and the state of the store.
            upstreams: Returns the addresses of brokers that may be tried.
            health: Tries to connect to them.
        """
        self._state = state
        self._upstreams = upstreams
        self._health = health

    async def readiness(self) -> Readiness:
        """Return the readiness at this moment."""
        draining, store = self._state()
        reachable = not draining and await self._health.first_answering(self._upstreams()) is not None
        return Readiness(
            ready=reachable and not draining,
            draining=draining,
            upstream_reachable=reachable,
            store_trouble=store.trouble,
            store_age_ms=store.age_ms,
        )
