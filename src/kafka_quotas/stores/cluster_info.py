"""What a cluster tells beside its quotas: whatever decides whether, and how, the stored quotas work."""

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
    """A throttle of replication: the broker or topic that it is set on, as `broker 1`, and the property."""

    place: str
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableZnode:
    """A znode that could not be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """What could be learnt; what could not is in `unknown`, a line each.

    `callbacks`: broker to the class that decides about quotas in Kafka's place. `threads`: broker to the number of its
    I/O and network threads. `reassigning`: whether partitions are being moved (None: unknown). `too_old`: brokers
    before 2.7. `unanswered`: brokers that are listed and could not be asked, and why. `empty_znodes`: nodes of entities
    that hold nothing any more. `unreadable`: znodes that can't be read; where there are any, `readable` has the quotas
    of the others.
    """

    callbacks: Mapping[str, str] = field(default_factory=dict)
    threads: Mapping[str, int] = field(default_factory=dict)
    replication_throttles: tuple[ReplicationThrottle, ...] = ()
    reassigning: bool | None = None
    too_old: tuple[str, ...] = ()
    unanswered: Mapping[str, str] = field(default_factory=dict)
    empty_znodes: tuple[str, ...] = ()
    unreadable: tuple[UnreadableZnode, ...] = ()
    readable: tuple[QuotaEntry, ...] = ()
    unknown: tuple[str, ...] = ()
