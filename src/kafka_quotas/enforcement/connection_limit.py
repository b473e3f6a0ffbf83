"""How many connections may be open to one broker: in all by a listener, and from one address.

A connection beyond its listener's number waits until one of the others ends, and so do all behind it; one beyond its
address's number is closed at once.

**Source:** `ConnectionQuotas` (4.x): `max.connections` of a listener, `max.connections.per.ip`.
"""

from collections import Counter

from kafka_quotas.core.ip_resolution import canonical_address


class OpenConnections:
    """The connections that are open to one broker."""

    def __init__(self) -> None:
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()

    def is_full(self, listener: str, limit: int | None) -> bool:
        """Whether a listener has as many connections as it may."""
        return limit is not None and self._by_listener[listener] >= limit

    def is_refused(self, ip: str, limit: int | None) -> bool:
        """Whether an address has as many connections as it may."""
        return limit is not None and self._by_ip[canonical_address(ip)] >= limit

    def opened(self, listener: str, ip: str) -> None:
        """Nothing; one more is open."""
        self._by_listener[listener] += 1
        self._by_ip[canonical_address(ip)] += 1

    def closed(self, listener: str, ip: str) -> None:
        """Nothing; one that was open is not any more."""
        for counter, key in ((self._by_listener, listener), (self._by_ip, canonical_address(ip))):
            counter[key] -= 1
            if counter[key] <= 0:
                del counter[key]
