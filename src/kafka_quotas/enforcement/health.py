"""Whether the daemon lives, and whether clients should be sent to it.

Alive is a daemon that answers at all. Ready is one that takes connections and reaches any broker; a store that is lost
makes it no less ready, for its last content stays in force.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.status import DaemonStatus
from kafka_quotas.enforcement.upstream_health import UpstreamHealth


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
    """Answers from the status, and from connections to brokers that are tried when somebody asks."""

    def __init__(
        self,
        status: Callable[[], DaemonStatus],
        upstreams: Callable[[], Sequence[Address]],
        *,
        health: UpstreamHealth,
    ) -> None:
        self._status = status
        self._upstreams = upstreams
        self._health = health

    async def readiness(self) -> Readiness:
        """The readiness at this moment."""
        status = self._status()
        reachable = not status.draining and await self._health.first_answering(self._upstreams()) is not None
        return Readiness(
            ready=reachable and not status.draining,
            draining=status.draining,
            upstream_reachable=reachable,
            store_trouble=status.store.trouble,
            store_age_ms=status.store.age_ms,
        )
