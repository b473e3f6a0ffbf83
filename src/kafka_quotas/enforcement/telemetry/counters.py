"""The daemon's counters: plain ints, so counting costs next to nothing on the hot path.

Invariants: everything here only grows; metrics and status read it, no decision depends on it.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """The daemon's counters since its start."""

    connections_accepted: int = 0
    accept_failures: int = 0
    """Attempts to accept a connection that failed: no file descriptor was left."""
    connections_failed: int = 0
    """Connections closed for an error of either side's protocol or network."""
    connections_delayed: int = 0
    """Connections that waited for the rate, or the number, of their listener or broker."""
    connections_throttled: int = 0
    """Connections closed unserved because their address made them too fast."""
    connections_refused: int = 0
    """Connections closed because their address had as many as it may have."""
    connections_expired: int = 0
    """Connections closed because nothing moved on them for `connections.max.idle.ms`."""
    upstream_connect_failures: int = 0
    protocol_errors: int = 0
    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    authentications: int = 0
    unknown_principals: int = 0
    """Authentications from which no principal could be read."""
    store_updates: int = 0
    store_failures: int = 0
    events_logged: int = 0
    """Charges that were written to the event log."""
    events_dropped: int = 0
    """Charges that the event log lost: it could not be written, or not fast enough."""
    state_saves: int = 0
    """Times that the state file was saved."""
    state_save_failures: int = 0
    buckets_evicted: int = 0
    """Buckets dropped because others needed their memory."""
    mutation_partitions: int = 0
    """Partitions that clients with a quota on it created, added or deleted."""
    mutation_refusals: int = 0
    """Topics refused because their client was over that quota."""
    threshold_rejected_bytes: int = 0
    """Bytes of records rejected because their topic was over its threshold."""
    threshold_rejected_batches: int = 0
    threshold_shadowed_bytes: int = 0
    """Bytes of records of clients in shadow mode over their topic's threshold."""
    oversized_bytes: int = 0
    """Bytes of records that a broker with thresholds refused as too large."""
    refused_requests: int = 0
    """Requests answered with an error because their client was over a byte rate."""
    fleet_topic_refusals: int = 0
    """Requests of clients that would have changed the topic of the fleet."""
    exempt_request_us: int = 0
    """Estimated thread time of requests that no request quota counts."""
