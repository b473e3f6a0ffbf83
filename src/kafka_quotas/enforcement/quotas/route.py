"""The route from a listener of the daemon to its broker."""

from dataclasses import dataclass

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.quotas.quota_registry import NodeId


@dataclass(slots=True, kw_only=True, eq=False)
class Route:
    """The route from one listener's port to a broker."""

    node_id: NodeId
    """None or negative for a bootstrap server until its node id is known."""
    port: int
    """Port of the listener."""
    upstream: Address
    """Address of the broker, which changes when the broker moves."""
    is_located: bool = True
    """Whether `upstream` is the broker's own address, rather than that of a bootstrap server."""

    @property
    def is_named(self) -> bool:
        """Whether the broker's node id is known."""
        return self.node_id is not None and self.node_id >= 0
