"""What every client took from its quotas, charge by charge: the queue of the daemon's event log.

Contract: a function that charges a bucket calls an `OnCharge` with what went in and the throttle time that came out,
nothing more; `ChargeQueue.recorder` makes one per connection. On the hot path a charge is a tuple on a queue; a thread
of its own turns it into a line. Invariants: the queue is bounded in charges and in bytes, what does not fit is counted
in `dropped`; charges come out in the order in which they went in.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.decisions import DecisionRequest
from kafka_quotas.enforcement.quotas.quota_registry import NodeId, Route

MAX_PENDING: Final = 200_000
"""Most charges that may wait for the writer: some seconds of what one process can pass on."""
MAX_PENDING_BYTES: Final = 96 * 1024 * 1024
"""Memory of the charges that may wait: the number above at the usual length of names, far fewer at 32 kB each."""
_CHARGE_BYTES: Final = 320
"""Memory of a charge without its names: two tuples, three numbers, a slot of the queue."""

NOWHERE: Final = Address(host="", port=0)
"""Upstream of charges that went through no listener."""

Charge: TypeAlias = tuple[int, str, str, QuotaType, int, float, int, bool]
"""(now_ms, user, client_id, quota_type, api_key, amount, throttle_ms, is_exempt): one charge of one bucket.

`amount` is in bytes, milliseconds of (estimated) thread time, or partitions, as the quota type has it. A plain tuple:
anything with named fields takes several times as long to make, once per request.
"""
OnCharge: TypeAlias = Callable[[Charge], None]
"""Records a charge without raising and without waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeSource:
    """The connection that charges come from."""

    connection: int
    """Number of the connection since the start, 0 for charges that other programs requested."""
    ip: str
    """Address of the client."""
    route: Route
    """Route that the connection took."""


class ChargeQueue:
    """The bounded queue of charges between the event loop and the writer's thread."""

    def __init__(self, *, limit: int = MAX_PENDING, limit_bytes: int = MAX_PENDING_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._queue: deque[tuple[ChargeSource, Charge]] = deque()
        # Two sums that only grow, each written by one thread: one that both change would need a lock per charge.
        self._bytes_put = 0
        self._bytes_taken = 0
        self.dropped = 0
        """Number of charges that found the queue full, since the start."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def size_bytes(self) -> int:
        """The estimated memory of the charges that wait, with names counted once per charge."""
        return self._bytes_put - self._bytes_taken

    def recorder(self, source: ChargeSource) -> OnCharge:
        """Return the function that records the charges of one connection."""
        queue, limit, limit_bytes = self._queue, self._limit, self._limit_bytes

        def record(charge: Charge) -> None:
            size = _size(charge)
            if len(queue) < limit and self._bytes_put - self._bytes_taken + size <= limit_bytes:
                self._bytes_put += size
                queue.append((source, charge))
            else:
                self.dropped += 1

        return record

    def record_requested(self, request: DecisionRequest, node_id: NodeId, charge: Charge) -> None:
        """Record a charge that another program requested, under connection 0."""
        route = Route(node_id=node_id, port=0, upstream=NOWHERE)
        self.recorder(ChargeSource(connection=0, ip=request.ip, route=route))(charge)

    def take(self, count: int) -> list[tuple[ChargeSource, Charge]]:
        """Take the oldest charges off the queue, at most `count`, in one thread only."""
        pop = self._queue.popleft
        taken = [pop() for _ in range(min(count, len(self._queue)))]
        self._bytes_taken += sum(_size(charge) for _, charge in taken)
        return taken


def _size(charge: Charge) -> int:
    """Return the most memory a charge takes in bytes, at four per character beyond ASCII."""
    user, client_id = charge[1], charge[2]
    text = len(user) + len(client_id)
    return _CHARGE_BYTES + (text if user.isascii() and client_id.isascii() else 4 * text)
