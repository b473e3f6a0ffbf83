"""Workloads of clients, in the words that scenarios, options and results share.

Contract: pure values. A flood describes one of its requests, and its rate is the client's. The unit of a rate follows
from the workload.
"""

from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.value_format import format_byte_rate


class Workload(StrEnum):
    """The work of a client, whose arrivals are records, requests or connections.

    They are records for produce and consume, and requests for requests and mutate.
    """

    PRODUCE = "produce"
    CONSUME = "consume"
    REQUESTS = "requests"
    MUTATE = "mutate"
    CONNECT = "connect"

    @property
    def moves_records(self) -> bool:
        """Whether its arrivals are records, and its quota counts bytes."""
        return self in (Workload.PRODUCE, Workload.CONSUME)


class ClientKind(StrEnum):
    """The library of a client, on which its behaviour under throttling depends."""

    LIBRDKAFKA = "librdkafka"
    RAW = "raw"


class Arrival(StrEnum):
    """The distribution of arrivals over time: even, random, or in bursts with pauses between."""

    CONSTANT = "constant"
    POISSON = "poisson"
    BURST = "burst"


class Loop(StrEnum):
    """The kind of loop in which a client sends.

    Open: arrivals happen when they are due, whatever the target does. Closed: the next one waits for an answer.
    """

    OPEN = "open"
    CLOSED = "closed"


class MutationKind(StrEnum):
    """The change to topics that a mutation flood makes."""

    CREATE = "create"
    DELETE = "delete"
    PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFlood:
    """One request of a flood."""

    api: str
    """The API, by Kafka's name."""
    max_wait_ms: int = 0
    """The longest time that the broker may wait with a Fetch response."""
    min_bytes: int = 1
    """The bytes that the broker waits for with a Fetch response."""
    max_bytes: int = 1_048_576
    """The largest Fetch response."""
    unauthorised: bool = False
    """Whether it requests a topic that the client has no access to."""

    def __post_init__(self) -> None:
        if not self.api:
            raise UsageError("a request flood needs an API", hint="examples: ApiVersions, Metadata, Fetch")
        if self.max_wait_ms < 0 or self.min_bytes < 0 or self.max_bytes < 1:
            raise UsageError("a fetch's wait and sizes are not below 0", hint="max_wait 0 asks again at once")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationFlood:
    """One request of a mutation flood.

    **Source:** KIP-599, the admin client's part.
    """

    kind: MutationKind = MutationKind.CREATE
    topics_per_request: int = 1
    partitions_per_topic: int = 1
    replication_factor: int = 1
    total_topics: int | None = None
    """The number of all topics, None for topics until the run ends."""
    prefix: str = "kafka-quotas-load-test-"
    """The start of the topics' names, which a running number follows."""
    api_timeout_ms: int = 60_000
    """The time for which a throttled topic is sent again."""
    retry_quota_violation: bool = True
    """Whether a throttled topic (error 89) is sent again after its throttle time."""
    validate_only: bool = False

    def __post_init__(self) -> None:
        counts = (self.topics_per_request, self.partitions_per_topic, self.replication_factor)
        if min(counts) < 1 or (self.total_topics is not None and self.total_topics < 1):
            raise UsageError("topics, partitions and replicas are counted from 1", hint="example: --topics 5")
        if not self.prefix:
            raise UsageError("topics that a run makes carry a prefix", hint="it is how they are found to be removed")
        if self.api_timeout_ms < 1:
            raise UsageError(f"an API timeout must be above 0 ms, not {self.api_timeout_ms}")


class RateUnit(StrEnum):
    """The unit of an achieved rate and of its quota."""

    BYTES = "bytes/s"
    REQUESTS = "requests/s"
    PARTITIONS = "partitions/s"
    CONNECTIONS = "connections/s"

    def text(self, rate: float) -> str:
        """Return a rate for people, such as `10.5 MB/s` or `4.98 requests/s`."""
        return format_byte_rate(rate) if self is RateUnit.BYTES else f"{rate:.4g} {self.value}"


UNITS = {
    Workload.PRODUCE: RateUnit.BYTES,
    Workload.CONSUME: RateUnit.BYTES,
    Workload.REQUESTS: RateUnit.REQUESTS,
    Workload.MUTATE: RateUnit.PARTITIONS,
    Workload.CONNECT: RateUnit.CONNECTIONS,
}
"""The unit of each workload's rate."""
