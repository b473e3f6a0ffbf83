"""Resolution of the connection quota of an address: its own, else the default, else none.

Invariants: addresses are compared as addresses, not as text. Each address has a bucket of its own, also under the
default.

**Source:** `ConnectionQuotas.connectionRateForIp` (4.0), Java's `InetAddress` for the identity of addresses.
"""

from ipaddress import IPv6Address, ip_address

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Absent, Entity
from kafka_quotas.core.model.ip_address import ipv4_literal, ipv6_literal
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota


def canonical_address(text: str) -> str:
    """Return the canonical spelling of an address, or the text itself if it is no address.

    An IPv4 address inside IPv6 is that IPv4 address, and a zone makes no difference.
    """
    packed = _packed(text)
    if packed is None:
        return text
    address = ip_address(packed)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def is_address(text: str) -> bool:
    """Return whether the text is an address and not a host name, which only a broker resolves."""
    return _packed(text) is not None


def _packed(text: str) -> bytes | None:
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return ipv4_literal(host) or ipv6_literal(host.partition("%")[0])


class IpQuotaResolver:
    """The connection quotas by address."""

    __slots__ = ("_default", "_limits")

    def __init__(self) -> None:
        self._limits: dict[str, tuple[Entity, float]] = {}
        self._default: float | None = None

    def update(self, entity: Entity, limit: float | None) -> None:
        """Set the limit of an address or of the default, or remove it (None).

        Raises:
            UsageError: An entity that is no address.
        """
        ip = entity.ip
        if isinstance(ip, Absent) or len(entity.parts) != 1:
            raise UsageError(f"connection quotas are set on addresses, not on {entity}")
        if ip is None:
            self._default = limit
        elif limit is None:
            self._limits.pop(canonical_address(ip), None)
        else:
            self._limits[canonical_address(ip)] = (entity, float(limit))

    def bucket(self, ip: str) -> tuple[str, str]:
        """Return the bucket of an address: the pair of `ip` and its canonical spelling."""
        return ("ip", canonical_address(ip))

    def match(self, ip: str) -> AppliedQuota | None:
        """Return the limit of an address (connections per second) with its entity and level (None: unlimited)."""
        return next(iter(self.candidates(ip)), None)

    def candidates(self, ip: str) -> list[AppliedQuota]:
        """Return the stored limits of the address itself and of the default, the winner first."""
        found = []
        own = self._limits.get(canonical_address(ip))
        if own is not None:
            found.append(AppliedQuota(level="ip", entity=own[0], limit=own[1]))
        if self._default is not None:
            found.append(AppliedQuota(level="ip-default", entity=Entity.of(ip=None), limit=self._default))
        return found
