"""What every client took from its quotas, charge by charge: the queue of the daemon's event log.

Contract: whoever charges a bucket calls an `OnCharge` with what went in and the throttle time that came out, nothing
more; `PendingCharges.recorder` makes one per connection. On the hot path a charge is a tuple on a queue; a thread of
its own turns it into a line. Invariants: the queue is bounded, what does not fit is counted in `dropped`; charges come
out in the order in which they went in.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.address import Address
from kafka_quotas.enforcement.broker_directory import Route
from kafka_quotas.enforcement.decision import Ask
from kafka_quotas.enforcement.policy import NodeId

MAX_PENDING: Final = 200_000
"""Charges that may wait for the writer: about 60 MB, and some seconds of what one process can relay."""

NOWHERE: Final = Address(host="", port=0)
"""The upstream of charges that went through no listener."""

Charge: TypeAlias = tuple[int, str, str, QuotaType, int, float, int, bool]
"""(now_ms, user, client_id, quota_type, api_key, amount, throttle_ms, is_exempt): what went into one bucket at once.

`amount` is in bytes, milliseconds of (estimated) thread time, or partitions, as the quota type has it. A plain tuple:
anything with named fields takes several times as long to make, once per request.
"""
OnCharge: TypeAlias = Callable[[Charge], None]
"""Takes note of a charge; never raises and never waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeSource:
    """Where charges come from: a connection's number since the start, the client's address, and the route it took."""

    connection: int
    ip: str
    route: Route


class PendingCharges:
    """The queue between the event loop and the writer's thread."""

    def __init__(self, *, limit: int = MAX_PENDING) -> None:
        self._limit = limit
        self._queue: deque[tuple[ChargeSource, Charge]] = deque()
        self.dropped = 0
        """Charges that found the queue full, since the start."""

    def __len__(self) -> int:
        return len(self._queue)

    def recorder(self, source: ChargeSource) -> OnCharge:
        """The function that takes note of the charges of one connection."""
        queue, limit = self._queue, self._limit

        def record(charge: Charge) -> None:
            if len(queue) < limit:
                queue.append((source, charge))
            else:
                self.dropped += 1

        return record

    def asked(self, ask: Ask, node_id: NodeId, charge: Charge) -> None:
        """Nothing; note is taken of a charge that another program asked for: it is of connection 0."""
        route = Route(node_id=node_id, port=0, upstream=NOWHERE)
        self.recorder(ChargeSource(connection=0, ip=ask.ip, route=route))(charge)

    def take(self, count: int) -> list[tuple[ChargeSource, Charge]]:
        """The oldest charges, at most `count`, which are off the queue then; for one thread only."""
        pop = self._queue.popleft
        return [pop() for _ in range(min(count, len(self._queue)))]
