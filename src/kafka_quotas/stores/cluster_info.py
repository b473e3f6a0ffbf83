"""Facts about a cluster, beside its quotas, that decide whether and how the stored quotas work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_quotas.stores.store import QuotaEntry

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
BROKER_THROTTLES: Final = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
TOPIC_THROTTLES: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationThrottle:
    """A throttle of replication traffic, set on a broker or a topic."""

    place: str
    """The broker or topic, such as `broker 1`."""
    name: str
    """The name of the property."""
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableZnode:
    """A znode that could not be read, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The facts that one look at a cluster found."""

    callbacks: Mapping[str, str] = field(default_factory=dict)
    """The class that decides about quotas in Kafka's place, by broker."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """The number of I/O and network threads, by broker."""
    replication_throttles: tuple[ReplicationThrottle, ...] = ()
    reassigning: bool | None = None
    """Whether partitions are being moved, None where that is not known."""
    too_old: tuple[str, ...] = ()
    """The brokers older than 2.7."""
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """The brokers that the cluster lists and that did not answer, with the reason."""
    empty_znodes: tuple[str, ...] = ()
    """The znodes of entities that no longer hold anything."""
    unreadable: tuple[UnreadableZnode, ...] = ()
    """The znodes that can't be read."""
    readable: tuple[QuotaEntry, ...] = ()
    """The quotas of all other znodes, where some are unreadable."""
    unknown: tuple[str, ...] = ()
    """The facts that could not be found out, a line each."""
