"""Unmuting by hand: which clients were unmuted, and how long each would have had to wait.

The measured rates stay. A client that is still over its limit waits again after its next request, so raise or remove
the limit first. Kafka has no such operation: there a mute lasts until its end, even if the quota changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_quotas.enforcement.quotas.quota_registry import NodeId, broker_name
from kafka_quotas.enforcement.session.state import ThrottledChannel


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmutedClient:
    """A client whose connections to one broker were unmuted, for one quota."""

    user: str
    client_id: str
    broker: str
    quota: str
    connections: int
    remaining_ms: int
    """Rest of the longest throttle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmuted:
    """The clients that were unmuted, by name."""

    unmuted: tuple[UnmutedClient, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChoice:
    """The clients to unmute, by user and client-id: None for any."""

    user: str | None = None
    client_id: str | None = None

    def is_of(self, mute: ThrottledChannel) -> bool:
        """Return whether a muted connection belongs to a chosen client."""
        limiter = mute.limiter
        return self.user in (None, limiter.user) and self.client_id in (None, limiter.client_id)


def sum_up(ended: Iterable[tuple[NodeId, ThrottledChannel]], now_ms: int) -> Unmuted:
    """Sum up the ended mutes, with the node id of each broker: one row per client, broker and quota."""
    by_name: dict[tuple[str, str, str, str], list[int]] = {}
    for node_id, mute in ended:
        name = (mute.limiter.user, mute.limiter.client_id, broker_name(node_id), mute.limiter.quota_type.key.name)
        by_name.setdefault(name, []).append(max(0, mute.until_ms - now_ms))
    rows = (
        UnmutedClient(
            user=user, client_id=client_id, broker=broker, quota=quota, connections=len(left), remaining_ms=max(left)
        )
        for (user, client_id, broker, quota), left in sorted(by_name.items())
    )
    return Unmuted(unmuted=tuple(rows))
