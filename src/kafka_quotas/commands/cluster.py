"""What the cluster behind a store adds to an answer: how many brokers there are, whether a callback replaces it all."""

from dataclasses import dataclass

from kafka_quotas.commands.cluster_view import ClusterView
from kafka_quotas.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFindings:
    """The cluster's size (None: unknown), and warnings about its brokers."""

    view: ClusterView | None
    warnings: tuple[str, ...] = ()


def look_at_cluster(*, brokers: int | None, topic: str | None) -> ClusterFindings:
    """What is known of the cluster: from `brokers`."""
    if topic is not None:
        raise UsageError("--topic needs a Kafka store", hint="only brokers know who leads a topic: --bootstrap-server")
    return ClusterFindings(view=None if brokers is None else ClusterView(brokers=brokers))
