"""The rates at which connections may be made: per address, listener and broker, with Kafka's delays.

A connection beyond the rate of its listener or broker waits, and so do all after it. One beyond the rate of its
address is not served: it is closed after the delay, and does not count.
A delay is at most one sample of the window (1 s by default).

**Source:** KIP-612; `ConnectionQuotas.waitForConnectionSlot` and `recordIpConnectionMaybeThrottle` (4.x).
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_quotas.core.metrics.rate import ShareableRate
from kafka_quotas.core.metrics.sensor import Quota, Sensor
from kafka_quotas.core.model.entity import ABSENT
from kafka_quotas.core.model.quota_key import CONNECTION_CREATION_RATE
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota, IpQuotaResolver, canonical_address
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSnapshot:
    """The state of one rate that is kept across a restart."""

    of: RateOf
    """Kind of the rate."""
    name: str
    """Listener or address, empty for the broker's own rate."""
    recorded_ms: int
    """Time of the last record."""
    figures: tuple[float, ...]
    """State of the rate's samples."""


class IpLimits:
    """The connection creation rates of addresses, as the store holds them."""

    def __init__(self) -> None:
        self._resolver = IpQuotaResolver()
        self.count = 0

    def apply(self, entries: Iterable[QuotaEntry]) -> None:
        """Replace all limits with those that these entries have for addresses."""
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

    def limit(self, ip: str) -> float | None:
        """Return the connections per second that an address may make, None for any number."""
        match = self._resolver.match(ip)
        return None if match is None else match.limit

    def match(self, ip: str) -> AppliedQuota | None:
        """Return the limit of an address with the entity it is set on, None where there is none."""
        return self._resolver.match(ip)


class _CountedRate:
    """A rate with a bound that may change, and the time of its last record."""

    __slots__ = ("last_ms", "rate", "sensor")

    def __init__(self, window: QuotaWindow) -> None:
        self.rate = SharedRate(window)
        self.sensor = Sensor(self.rate, max_throttle_ms=window.window_ms)
        self.last_ms = 0

    def record(self, limit: float | None, now_ms: int, count: float = 1.0) -> int:
        """Record connections and return their delay in ms, 0 where they fit."""
        self.last_ms = now_ms
        if self.sensor.quota is None or self.sensor.quota.bound != limit:
            self.sensor.quota = None if limit is None else Quota(limit)
            self.rate.limit = limit
        violation = self.sensor.record(count, now_ms)
        return 0 if violation is None else max(violation.throttle_ms or 0, 0)

    def take_back(self, now_ms: int, count: float = 1.0) -> None:
        """Take recorded connections out of the rate again."""
        self.last_ms = now_ms
        self.rate.record(-count, now_ms)


class SharedRate(ShareableRate):
    """The rate of connections, with the limit that several daemons share."""

    __slots__ = ("limit", "whole_s")

    def __init__(self, window: QuotaWindow) -> None:
        super().__init__(window.samples, window.window_ms)
        self.limit: float | None = None
        self.whole_s = (window.samples - 1) * window.window_s

    @property
    def capacity(self) -> float:
        """The most connections that fit at once after a rest, or an amount beyond all without a limit."""
        return UNLIMITED if self.limit is None else self.limit * self.whole_s


class ConnectionRates:
    """The rates of connections to one broker."""

    def __init__(self, window: QuotaWindow, ip_limits: IpLimits, *, broker_limit: float | None = None) -> None:
        self._window = window
        self.ip_limits = ip_limits
        self._broker_limit = broker_limit
        self._broker = _CountedRate(window)
        self._listeners: dict[str, _CountedRate] = {}
        self._ips: dict[str, _CountedRate] = {}

    def listener_delay_ms(self, listener: str, limit: float | None, now_ms: int) -> int:
        """Record one connection of a listener, and return its delay and that of all after it in ms."""
        delay_ms = self._broker.record(self._broker_limit, now_ms)
        if limit is None:
            return delay_ms
        rate = self._listeners.get(listener)
        if rate is None:
            rate = self._listeners[listener] = _CountedRate(self._window)
        return max(delay_ms, rate.record(limit, now_ms))

    def take_back(self, listener: str, now_ms: int) -> None:
        """Take one connection, which is not served, out of the rates of its listener and broker."""
        for rate in (self._broker, self._listeners.get(listener)):
            if rate is not None:
                rate.take_back(now_ms)

    def record_ip(self, ip: str, count: float, now_ms: int) -> int:
        """Record connections of an address, or return the delay in ms after which they are closed instead."""
        limit = self.ip_limits.limit(ip)
        if limit is None:
            return 0
        rate = self._rate_of(ip)
        delay_ms = rate.record(limit, now_ms, count)
        if delay_ms:
            rate.take_back(now_ms, count)
        return delay_ms

    def would_delay_ip_ms(self, ip: str, count: float, now_ms: int) -> int:
        """Return the delay in ms that connections of an address would have, without recording them."""
        limit = self.ip_limits.limit(ip)
        if limit is None:
            return 0
        asked, known = _CountedRate(self._window), self._ips.get(canonical_address(ip))
        if known is not None:
            asked.rate.restore(known.rate.snapshot, 0)
        return asked.record(limit, now_ms, count)

    def unrecord_ip(self, ip: str, count: float, now_ms: int) -> None:
        """Take connections of an address out of its rate again."""
        if self.ip_limits.limit(ip) is not None:
            self._rate_of(ip).take_back(now_ms, count)

    def observed_ip(self, ip: str, now_ms: int) -> float:
        """Return the connections per second that an address makes, without changing the rate."""
        rate = self._ips.get(canonical_address(ip))
        return 0.0 if rate is None else rate.rate.peek(now_ms)

    def snapshots(self) -> Iterator[RateSnapshot]:
        """Yield the state of each rate that has a record."""
        for of, name, rate in self._rates():
            if rate.last_ms:
                yield RateSnapshot(of=of, name=name, recorded_ms=rate.last_ms, figures=rate.rate.snapshot)

    def restore(self, snapshot: RateSnapshot, shift_ms: int) -> None:
        """Restore a rate with all its times moved by `shift_ms`.

        Raises:
            ValueError: The figures belong to another window.
        """
        rate = _CountedRate(self._window)
        rate.rate.restore(snapshot.figures, shift_ms)
        rate.last_ms = snapshot.recorded_ms + shift_ms
        match snapshot.of:
            case RateOf.BROKER:
                self._broker = rate
            case RateOf.LISTENER:
                self._listeners[snapshot.name] = rate
            case RateOf.IP:
                self._ips[canonical_address(snapshot.name)] = rate

    def shared(self, since_ms: int) -> Iterator[tuple[str, SharedRate]]:
        """Yield the name and the rate of those with a limit and a record since a time."""
        for of, name, rate in self._rates():
            if rate.last_ms >= since_ms and rate.rate.limit is not None:
                yield f"{of.value}\0{name}", rate.rate

    def _rates(self) -> Iterator[tuple[RateOf, str, _CountedRate]]:
        yield RateOf.BROKER, "", self._broker
        for name, rate in self._listeners.items():
            yield RateOf.LISTENER, name, rate
        for address, rate in list(self._ips.items()):  # others may come and go between two of them
            yield RateOf.IP, address, rate

    def expiry(self, now_ms: int) -> Generator[None, None, None]:
        """Drop the rates of addresses that made no connection for an hour, and yield after each slice of them."""
        addresses = list(self._ips)
        for start in range(0, len(addresses), _SLICE):
            for address in addresses[start : start + _SLICE]:
                rate = self._ips.get(address)
                if rate is not None and now_ms - rate.last_ms >= IDLE_MS:
                    del self._ips[address]
            yield

    def _rate_of(self, ip: str) -> _CountedRate:
        address = canonical_address(ip)
        rate = self._ips.get(address)
        if rate is None:
            rate = self._ips[address] = _CountedRate(self._window)
        return rate
