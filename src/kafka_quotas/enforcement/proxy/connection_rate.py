"""How fast connections may be made: per address, per listener and per broker, with Kafka's delays.

A connection beyond the rate of its listener or broker waits, and so do all behind it. One beyond the rate of its
address is not served: it is closed after the delay, and does not count.
A delay is at most one sample of the window (1 s by default).

**Source:** KIP-612; `ConnectionQuotas.waitForConnectionSlot` and `recordIpConnectionMaybeThrottle` (4.x).
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.metrics.sensor import Quota, Sensor
from kafka_quotas.core.model.entity import ABSENT
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.resolution.ip_resolver import IpQuotaResolver, canonical_address
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota
from kafka_quotas.stores.store import QuotaEntry

IDLE_MS: Final = 3_600_000
"""A rate nobody recorded to for so long is forgotten, as a broker does it."""


class RateOf(StrEnum):
    """Whose connections are counted."""

    BROKER = "broker"
    LISTENER = "listener"
    IP = "ip"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMemory:
    """What one rate has to remember across a restart: whose it is, its last record (ms), and its figures.

    `name` is that of a listener or an address, empty for the broker's own.
    """

    of: RateOf
    name: str
    recorded_ms: int
    figures: tuple[float, ...]


class IpLimits:
    """The limits by address, as a store holds them."""

    def __init__(self) -> None:
        self._resolver = IpQuotaResolver()
        self.version = 0
        """Changes with every change of the limits."""
        self.count = 0

    def apply(self, entries: Iterable[QuotaEntry]) -> None:
        """Nothing; these limits are in force and no others. Entries that are not of addresses are passed over."""
        resolver = IpQuotaResolver()
        limits = [
            (entry.entity, limit)
            for entry in entries
            if entry.entity.ip is not ABSENT and (limit := entry.quotas.get(CONNECTION_CREATION_RATE.name)) is not None
        ]
        for entity, limit in limits:
            resolver.update(entity, limit)
        self._resolver = resolver
        self.count = len(limits)
        self.version += 1

    def limit(self, ip: str) -> float | None:
        """Connections per second that an address may make, None for any number."""
        match = self._resolver.match(ip)
        return None if match is None else match.limit

    def match(self, ip: str) -> AppliedQuota | None:
        """The limit of an address with the entity that it is set on, None where it may make any number."""
        return self._resolver.match(ip)


class _CountedRate:
    """A rate with a bound that may change, and when it was last asked."""

    __slots__ = ("last_ms", "rate", "sensor")

    def __init__(self, window: QuotaWindow) -> None:
        self.rate = Rate(window.samples, window.window_ms)
        self.sensor = Sensor(self.rate, max_throttle_ms=window.window_ms)
        self.last_ms = 0

    def record(self, limit: float | None, now_ms: int, count: float = 1.0) -> int:
        """The delay in ms of more connections, 0 where they fit; they are recorded either way."""
        self.last_ms = now_ms
        if self.sensor.quota is None or self.sensor.quota.bound != limit:
            self.sensor.quota = None if limit is None else Quota(limit)
        violation = self.sensor.record(count, now_ms)
        return 0 if violation is None else max(violation.throttle_ms or 0, 0)

    def take_back(self, now_ms: int, count: float = 1.0) -> None:
        """Nothing; so many connections that were recorded do not count."""
        self.last_ms = now_ms
        self.rate.record(-count, now_ms)


class ConnectionRates:
    """The rates of connections to one broker."""

    def __init__(self, window: QuotaWindow, ip_limits: IpLimits, *, broker_limit: float | None = None) -> None:
        self._window = window
        self._ip_limits = ip_limits
        self._broker_limit = broker_limit
        self._broker = _CountedRate(window)
        self._listeners: dict[str, _CountedRate] = {}
        self._ips: dict[str, _CountedRate] = {}

    def listener_delay_ms(self, listener: str, limit: float | None, now_ms: int) -> int:
        """How long one more connection of a listener waits, with all behind it; the connection counts."""
        delay_ms = self._broker.record(self._broker_limit, now_ms)
        if limit is None:
            return delay_ms
        rate = self._listeners.get(listener)
        if rate is None:
            rate = self._listeners[listener] = _CountedRate(self._window)
        return max(delay_ms, rate.record(limit, now_ms))

    def ip_delay_ms(self, ip: str, listener: str, now_ms: int) -> int:
        """After how long a connection of an address is closed unserved; 0 where it is served, and counts.

        One that is not served does not count for its listener and broker either.
        """
        limit = self._ip_limits.limit(ip)
        if limit is None:
            return 0
        rate = self._rate_of(ip)
        delay_ms = rate.record(limit, now_ms)
        if delay_ms:
            for counted in (rate, self._broker, self._listeners.get(listener)):
                if counted is not None:
                    counted.take_back(now_ms)
        return delay_ms

    def match_ip(self, ip: str) -> AppliedQuota | None:
        """The limit of an address with the entity that it is set on, None where it may make any number."""
        return self._ip_limits.match(ip)

    def record_ip(self, ip: str, count: float, now_ms: int) -> int:
        """The delay in ms of connections that an address makes elsewhere; they count where it is 0."""
        limit = self._ip_limits.limit(ip)
        if limit is None:
            return 0
        rate = self._rate_of(ip)
        delay_ms = rate.record(limit, now_ms, count)
        if delay_ms:
            rate.take_back(now_ms, count)
        return delay_ms

    def would_delay_ip_ms(self, ip: str, count: float, now_ms: int) -> int:
        """The delay in ms that connections of an address would have; nothing is recorded."""
        limit = self._ip_limits.limit(ip)
        if limit is None:
            return 0
        rate = self._ips.get(canonical_address(ip))
        return (_CountedRate(self._window) if rate is None else copy.deepcopy(rate)).record(limit, now_ms, count)

    def unrecord_ip(self, ip: str, count: float, now_ms: int) -> None:
        """Nothing; so many connections of an address do not count."""
        if self._ip_limits.limit(ip) is not None:
            self._rate_of(ip).take_back(now_ms, count)

    def observed_ip(self, ip: str, now_ms: int) -> float:
        """Connections per second that an address makes; asking changes nothing."""
        rate = self._ips.get(canonical_address(ip))
        return 0.0 if rate is None else rate.rate.peek(now_ms)

    def memories(self) -> Iterator[RateMemory]:
        """What each rate has to remember, if it ever counted."""
        for of, name, rate in self._rates():
            if rate.last_ms:
                yield RateMemory(of=of, name=name, recorded_ms=rate.last_ms, figures=rate.rate.memory)

    def remember(self, memory: RateMemory, shift_ms: int) -> None:
        """Nothing; a rate goes on in place of another, with all its times moved by `shift_ms`.

        Raises `ValueError` for figures of another window.
        """
        rate = _CountedRate(self._window)
        rate.rate.remember(memory.figures, shift_ms)
        rate.last_ms = memory.recorded_ms + shift_ms
        match memory.of:
            case RateOf.BROKER:
                self._broker = rate
            case RateOf.LISTENER:
                self._listeners[memory.name] = rate
            case RateOf.IP:
                self._ips[canonical_address(memory.name)] = rate

    def _rates(self) -> Iterator[tuple[RateOf, str, _CountedRate]]:
        yield RateOf.BROKER, "", self._broker
        for name, rate in self._listeners.items():
            yield RateOf.LISTENER, name, rate
        for address, rate in list(self._ips.items()):  # others may come and go between two of them
            yield RateOf.IP, address, rate

    def expire_idle(self, now_ms: int) -> None:
        """Nothing; addresses that made no connection for an hour are forgotten."""
        for address in [address for address, rate in self._ips.items() if now_ms - rate.last_ms >= IDLE_MS]:
            del self._ips[address]

    def _rate_of(self, ip: str) -> _CountedRate:
        """The rate of an address, made where there is none."""
        address = canonical_address(ip)
        rate = self._ips.get(address)
        if rate is None:
            rate = self._ips[address] = _CountedRate(self._window)
        return rate
