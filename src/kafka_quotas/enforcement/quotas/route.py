"""One listener of the daemon and the broker it leads to."""

from dataclasses import dataclass

from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.quotas.quota_registry import NodeId


@dataclass(slots=True, kw_only=True, eq=False)
class Route:
    """A listener's port and the broker it leads to: `upstream` changes when the broker moves.

    A `node_id` that is None or negative stands for the broker behind a bootstrap server until its own id is known.
    """

    node_id: NodeId
    port: int
    upstream: Address
    is_located: bool = True
    """Whether `upstream` is the broker's own address; until that is known it is a bootstrap server's."""

    @property
    def is_named(self) -> bool:
        """Whether the broker's node id is known."""
        return self.node_id is not None and self.node_id >= 0
