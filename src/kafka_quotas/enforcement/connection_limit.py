"""How many connections may be open: to one broker by a listener and from one address, and to all of them together.

A connection beyond its listener's number, or the daemon's, waits until one of the others ends, and so do all behind it;
one beyond its address's number is closed at once.

**Source:** `ConnectionQuotas` (4.x): `max.connections` of a listener, `max.connections.per.ip`; HAProxy's `maxconn`.
"""

from collections import Counter
from collections.abc import Callable

from kafka_quotas.core.ip_resolution import canonical_address


class ConnectionTotal:
    """The connections of the whole daemon; `limit` is how many there may be, None for any number."""

    def __init__(self, limit: int | None, *, on_room: Callable[[], None]) -> None:
        self._limit = limit
        self._count = 0
        self._on_room = on_room

    @property
    def is_full(self) -> bool:
        """Whether there are as many as there may be."""
        return self._limit is not None and self._count >= self._limit

    def opened(self) -> None:
        """Count one more."""
        self._count += 1

    def closed(self) -> None:
        """Count one less; where there was no room all who wait for some are told."""
        was_full = self.is_full
        self._count -= 1
        if was_full:
            self._on_room()


class OpenConnections:
    """The connections that are open to one broker."""

    def __init__(self) -> None:
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()

    def is_full(self, listener: str, limit: int | None) -> bool:
        """Return whether a listener has as many connections as it may."""
        return limit is not None and self._by_listener[listener] >= limit

    def is_refused(self, ip: str, limit: int | None) -> bool:
        """Return whether an address has as many connections as it may."""
        return limit is not None and self._by_ip[canonical_address(ip)] >= limit

    def opened(self, listener: str) -> None:
        """Count one more of a listener."""
        self._by_listener[listener] += 1

    def came_from(self, ip: str) -> None:
        """Count one more from an address."""
        self._by_ip[canonical_address(ip)] += 1

    def closed(self, listener: str) -> None:
        """Count one less of a listener."""
        _take_one(self._by_listener, listener)

    def went(self, ip: str) -> None:
        """Count one less from an address."""
        _take_one(self._by_ip, canonical_address(ip))


def _take_one(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
