"""Whether the daemon lives, and whether clients should be sent to it.

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
    """Answers from what it is told, and from connections to brokers that are tried when somebody asks."""

    def __init__(
        self,
        state: Callable[[], tuple[bool, StoreRow]],
        upstreams: Callable[[], Sequence[Address]],
        *,
        health: UpstreamHealth,
    ) -> None:
        """Make a health that tries nothing yet.

        Args:
            state: tells whether the daemon is draining, and how the store is.
            upstreams: tells the addresses of brokers that may be tried.
            health: tries them.
        """
        self._state = state
        self._upstreams = upstreams
        self._health = health

    async def readiness(self) -> Readiness:
        """The readiness at this moment."""
        draining, store = self._state()
        reachable = not draining and await self._health.first_answering(self._upstreams()) is not None
        return Readiness(
            ready=reachable and not draining,
            draining=draining,
            upstream_reachable=reachable,
            store_trouble=store.trouble,
            store_age_ms=store.age_ms,
        )
