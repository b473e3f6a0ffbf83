"""The connections to each broker: how many are open and how fast they are made, whichever listener they come by.

A connection counts from the moment it is accepted, before its first byte; see `ConnectionSlot`. Its number is limited
to one broker by a listener and from one address, and to all of them together. A connection beyond its listener's
number, or the daemon's, waits until one of the others ends, and so do all after it; one beyond its address's number is
closed at once.

A connection beyond the rate of its listener or broker waits, and so do all after it. One beyond the rate of its address
is not served: it is closed after the delay, and does not count. A delay is at most one sample of the window (1 s by
default).

**Source:** KIP-612; `ConnectionQuotas.waitForConnectionSlot` and `recordIpConnectionMaybeThrottle` (4.x):
`max.connections` of a listener, `max.connections.per.ip`; HAProxy's `maxconn`.
"""

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from enum import StrEnum
from typing import Final, TypeAlias

from kafka_quotas.core.groups.membership import Peer
from kafka_quotas.core.metrics.rate import ShareableRate
from kafka_quotas.core.metrics.throttle_time import throttle_time_ms
from kafka_quotas.core.model.entity import ABSENT
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE, UNLIMITED
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_bucket import BucketSnapshot, longest_wait
from kafka_quotas.core.resolution.quota_resolver import IpQuotaResolver, canonical_address
from kafka_quotas.enforcement.config.listener_settings import ListenerSettings
from kafka_quotas.enforcement.quotas.broker_quotas import NO_GROUPS
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.stores.store import QuotaEntry

IDLE_MS: Final = 3_600_000
"""Milliseconds after which a rate without a record is dropped, as in a broker."""
_SLICE: Final = 10_000
"""Addresses that are looked at between two pauses: a few milliseconds' work."""


class RateOf(StrEnum):
    """Whose connections are counted."""

    BROKER = "broker"
    LISTENER = "listener"
    IP = "ip"
    GROUP = "group"
    GUARANTEED = "guaranteed"


Bound: TypeAlias = tuple[RateOf, str, float]
"""Whose connections are counted, its name, and its connections per second."""


class ConnectionRate(ShareableRate):
    """A rate of connections under a limit that may change, and the time of its last record."""

    __slots__ = ("_longest_ms", "last_ms", "limit", "whole_s")

    def __init__(self, window: QuotaWindow) -> None:
        super().__init__(window.samples, window.window_ms)
        self._longest_ms = window.window_ms
        self.limit: float | None = None
        self.whole_s = (window.samples - 1) * window.window_s
        self.last_ms = 0

    @property
    def capacity(self) -> float:
        """The most connections that fit at once after a rest, or an amount beyond all without a limit."""
        return UNLIMITED if self.limit is None else self.limit * self.whole_s

    def charge(self, limit: float | None, now_ms: int, count: float = 1.0) -> int:
        """Record connections and return their delay in ms, 0 if they fit."""
        self.last_ms = now_ms
        self.limit = limit
        self.record(count, now_ms)
        if limit is None or (rate := self.measure(now_ms)) <= limit:
            return 0
        return max(0, min(throttle_time_ms(rate, limit, self.window_ms(now_ms)), self._longest_ms))

    def take_back(self, now_ms: int, count: float = 1.0) -> None:
        """Take recorded connections out of the rate again."""
        self.last_ms = now_ms
        self.record(-count, now_ms)


def _take_one(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


SPARE_DESCRIPTORS: Final = 200
"""File descriptors that connections leave to everything else: store, logs, control socket, refused connections."""
_PER_CONNECTION: Final = 2
"""The client's socket and the broker's."""


def connections_for(descriptors: int) -> int:
    """Return how many connections fit into this number of file descriptors, at least one."""
    return max(1, (descriptors - SPARE_DESCRIPTORS) // _PER_CONNECTION)


class BrokerConnectionQuotas:
    """The rates, numbers and limits of the connections to one broker, as part of those to all."""

    def __init__(self, everyone: "ConnectionQuotas") -> None:
        self.everyone = everyone
        self.by_listener: Counter[str] = Counter()
        self.by_ip: Counter[str] = Counter()
        """The number of open connections of each address, in its canonical form."""
        self.rates: dict[tuple[RateOf, str], ConnectionRate] = {}
        """The rates by listener, address and group, the broker's own under an empty name."""
        self._ended = asyncio.Event()

    def _rate(self, of: RateOf, name: str) -> ConnectionRate:
        rate = self.rates.get((of, name))
        if rate is None:
            rate = self.rates[of, name] = ConnectionRate(self.everyone.window)
        return rate

    def listener_delay_ms(self, listener: str, limit: float | None, now_ms: int) -> int:
        """Record one connection of a listener, and return its delay and that of all after it in ms."""
        delay_ms = self._rate(RateOf.BROKER, "").charge(self.everyone.broker_rate, now_ms)
        if limit is None:
            return delay_ms
        return max(delay_ms, self._rate(RateOf.LISTENER, listener).charge(limit, now_ms))

    def take_back(self, listener: str, now_ms: int) -> None:
        """Take one connection, which is not served, out of the rates of its listener and broker."""
        for of in ((RateOf.BROKER, ""), (RateOf.LISTENER, listener)):
            if of in self.rates:
                self.rates[of].take_back(now_ms)

    def record_ip(self, ip: str, count: float, now_ms: int, *, listener: str = "") -> int:
        """Record connections of an address, or return the delay in ms after which they are closed instead."""
        charged = [(of, self._rate(of, name), bound) for of, name, bound in self.everyone.bounds_of(Peer(listener, ip))]
        delay_ms, _ = longest_wait(
            (of, of is RateOf.GUARANTEED, rate.charge(bound, now_ms, count)) for of, rate, bound in charged
        )
        if delay_ms:
            for _, rate, _ in charged:
                rate.take_back(now_ms, count)
        return delay_ms

    def asked_ip(self, ip: str, count: float, now_ms: int) -> tuple[int, Bound | None]:
        """Return the delay in ms that connections of an address would have, and the limit that requires it."""
        bounds = self.everyone.bounds_of(Peer(address=ip))
        return longest_wait((each, each[0] is RateOf.GUARANTEED, self._asked(each, count, now_ms)) for each in bounds)

    def _asked(self, bound: Bound, count: float, now_ms: int) -> int:
        (of, name, limit), copy = bound, ConnectionRate(self.everyone.window)
        if (of, name) in self.rates:
            copy.restore(self.rates[of, name].snapshot, 0)
        return copy.charge(limit, now_ms, count)

    def unrecord_ip(self, ip: str, count: float, now_ms: int) -> None:
        """Take connections of an address out of its rate, and of those of its groups, again."""
        for of, name, _ in self.everyone.bounds_of(Peer(address=ip)):
            self._rate(of, name).take_back(now_ms, count)

    def observed(self, of: RateOf, name: str, now_ms: int) -> float:
        """Return the connections per second of an address or group, without changing the rate."""
        rate = self.rates.get((of, name))
        return 0.0 if rate is None else rate.peek(now_ms)

    def restore(self, of: str, name: str, snapshot: BucketSnapshot, shift_ms: int) -> None:
        """Restore a rate with all its times moved by `shift_ms`, or raise a `ValueError` for another window's."""
        rate, whose = ConnectionRate(self.everyone.window), RateOf(of)
        rate.restore(snapshot.figures, shift_ms)
        rate.last_ms = snapshot.recorded_ms + shift_ms
        self.rates[whose, canonical_address(name) if whose is RateOf.IP else name] = rate

    def expiry(self, now_ms: int) -> Generator[None, None, None]:
        """Drop the rates of addresses that made no connection for an hour, and yield after each slice of them."""
        keys = [key for key in self.rates if key[0] is RateOf.IP]
        for start in range(0, len(keys), _SLICE):
            for key in keys[start : start + _SLICE]:
                rate = self.rates.get(key)
                if rate is not None and now_ms - rate.last_ms >= IDLE_MS:
                    del self.rates[key]
            yield

    def is_full(self, settings: ListenerSettings) -> bool:
        """Return whether a listener, or the daemon, has as many connections as it may."""
        return self.everyone.is_full or self._is_listener_full(settings)

    def has_room_for(self, slot: "ConnectionSlot", settings: ListenerSettings) -> bool:
        """Return whether a connection that is counted already may count for this broker."""
        return slot.connections is self or not self._is_listener_full(settings)

    def is_refused(self, settings: ListenerSettings, ip: str) -> bool:
        """Return whether an address has as many connections as it may."""
        limit = settings.max_connections_per_ip
        return limit is not None and self.by_ip[canonical_address(ip)] >= limit

    def began(self, listener: str, *, recorded: "BrokerConnectionQuotas") -> "ConnectionSlot":
        """Count one more connection of a listener, its rate being recorded already, and return its slot."""
        self.everyone.count += 1
        self.by_listener[listener] += 1
        return ConnectionSlot(self, listener, recorded)

    def _is_listener_full(self, settings: ListenerSettings) -> bool:
        return settings.max_connections is not None and self.by_listener[settings.name] >= settings.max_connections

    def look_again(self) -> None:
        """Wake the connections that wait for room to check for it again."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()

    async def one_ended(self) -> None:
        """Wait until a connection ends, or there may be room for another reason."""
        await self._ended.wait()


class ConnectionSlot:
    """One connection's place in the counts, from its accept to its end.

    It counts for a listener at the broker of the port that it was accepted on. Once the connection's own broker is
    known it counts there, and once its real source is known it counts for that address as well.
    """

    __slots__ = ("_ip", "_is_over", "_recorded", "connections", "listener")

    def __init__(self, connections: BrokerConnectionQuotas, listener: str, recorded: BrokerConnectionQuotas) -> None:
        self.connections = connections
        self.listener = listener
        self._recorded = recorded
        self._ip: str | None = None
        self._is_over = False

    def move(self, connections: BrokerConnectionQuotas) -> None:
        """Count for this broker from now on, and for no address yet."""
        before, self.connections = self.connections, connections
        self._leave_ip(before)
        if connections is not before:
            connections.by_listener[self.listener] += 1
            _take_one(before.by_listener, self.listener)
            before.look_again()

    def came_from(self, ip: str) -> None:
        """Count for an address as well."""
        self._ip = canonical_address(ip)
        self.connections.by_ip[self._ip] += 1

    def take_back_rate(self, now_ms: int) -> None:
        """Take the connection out of the rates of the listener and broker that it was recorded at."""
        # Not `connections`: a listener with several routes may have recorded it at another broker than its own.
        self._recorded.take_back(self.listener, now_ms)

    def end(self) -> None:
        """Remove the connection from all counts, once."""
        if self._is_over:
            return
        self._is_over = True
        self._leave_ip(self.connections)
        _take_one(self.connections.by_listener, self.listener)
        self.connections.everyone.one_closed()
        self.connections.look_again()

    def _leave_ip(self, connections: BrokerConnectionQuotas) -> None:
        if self._ip is not None:
            _take_one(connections.by_ip, self._ip)
            self._ip = None


class ConnectionQuotas:
    """The limits on connections to every broker, where those of addresses are the store's."""

    def __init__(
        self, window: QuotaWindow, *, broker_rate: float | None = None, max_connections: int | None = None
    ) -> None:
        self.window = window
        self.broker_rate = broker_rate
        self._limit = max_connections
        self.count = 0
        """The number of open connections of the whole daemon."""
        self.brokers: dict[NodeId, BrokerConnectionQuotas] = {}
        self.ip_limits = IpQuotaResolver()
        """The connection creation rates of addresses, as the store holds them."""
        self.groups = NO_GROUPS
        """The groups, some of which may have limits on connections."""

    def apply(self, entries: Iterable[QuotaEntry]) -> None:
        """Replace all limits of addresses with those that these entries have for them."""
        resolver = IpQuotaResolver()
        for entry in entries:
            limit = entry.quotas.get(CONNECTION_CREATION_RATE.name)
            if entry.entity.ip is not ABSENT and limit is not None:
                resolver.update(entry.entity, limit)
        self.ip_limits = resolver  # last: an entry that can't be used leaves the limits as they are

    def bounds_of(self, peer: Peer) -> Iterator[Bound]:
        """Yield the limits and guaranteed rates of a connection, those of its outermost group first."""
        group = self.groups.group_of_connection(peer)
        for bound in self.groups.tree.bounds_around(group, CONNECTION_CREATION_RATE.name):
            yield RateOf(bound.level), bound.group, bound.rate
        limit = self.ip_limits.match(peer.address)
        if limit is not None:
            yield RateOf.IP, canonical_address(peer.address), limit.limit

    @property
    def is_full(self) -> bool:
        """Whether the number of connections has reached the limit."""
        return self._limit is not None and self.count >= self._limit

    def one_closed(self) -> None:
        """Count one connection less, and have those that wait look for room if there was none."""
        was_full = self.is_full
        self.count -= 1
        if was_full:
            for connections in self.brokers.values():
                connections.look_again()

    def broker(self, node_id: NodeId) -> BrokerConnectionQuotas:
        """Return the connections to a broker, and count them from now on at its first mention."""
        connections = self.brokers.get(node_id)
        if connections is None:
            connections = self.brokers[node_id] = BrokerConnectionQuotas(self)
        return connections

    def name(self, placeholder: NodeId, node_id: int) -> None:
        """Move the counts of a placeholder to the node id that it turned out to be."""
        if placeholder in self.brokers and node_id not in self.brokers:
            self.brokers[node_id] = self.brokers.pop(placeholder)

    def expiry(self, now_ms: int) -> Generator[None, None, None]:
        """Drop the rates of addresses that made no connection for an hour, and yield after each slice of them."""
        for connections in list(self.brokers.values()):
            yield from connections.expiry(now_ms)
