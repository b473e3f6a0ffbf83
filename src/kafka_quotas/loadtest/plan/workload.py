"""What a client of a run can do to its target, and how: the words that scenarios, options and results share.

Contract: pure values. A flood says what one of its requests looks like; how often it is sent is the entity's.

What a load's rate counts, which follows from what the load does.
"""

from dataclasses import dataclass
from enum import StrEnum

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.units import format_bytes


class Workload(StrEnum):
    """What a client does. Its arrivals are records (produce, consume), requests (requests, mutate) or connections."""

    PRODUCE = "produce"
    CONSUME = "consume"
    REQUESTS = "requests"
    MUTATE = "mutate"
    CONNECT = "connect"


class ClientKind(StrEnum):
    """Which library speaks for a client: they differ in what they do when throttled."""

    LIBRDKAFKA = "librdkafka"
    KAFKA_PYTHON = "kafka-python"
    RAW = "raw"


class Arrival(StrEnum):
    """How arrivals are spread over time: evenly, at random, or many at once with pauses between."""

    CONSTANT = "constant"
    POISSON = "poisson"
    BURST = "burst"


class Loop(StrEnum):
    """Open: arrivals come when they are due, whatever the target does. Closed: the next waits for an answer."""

    OPEN = "open"
    CLOSED = "closed"


class MutationKind(StrEnum):
    """What a mutation flood does to topics."""

    CREATE = "create"
    DELETE = "delete"
    PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFlood:
    """One request of a flood: its API by Kafka's name, and for Fetch how long the broker may wait for how much.

    `unauthorised`: it asks for a topic that the client may not touch.
    """

    api: str
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 1_048_576
    unauthorised: bool = False

    def __post_init__(self) -> None:
        if not self.api:
            raise UsageError("a request flood needs an API", hint="examples: ApiVersions, Metadata, Fetch")
        if self.max_wait_ms < 0 or self.min_bytes < 0 or self.max_bytes < 1:
            raise UsageError("a fetch's wait and sizes are not below 0", hint="max_wait 0 asks again at once")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationFlood:
    """One request of a mutation flood. Its topics are `prefix` and a running number; None topics: until the run ends.

    A throttled topic (error 89) is sent again after its throttle time until `api_timeout_ms` is over, if
    `retry_quota_violation`. **Source:** KIP-599, the admin client's part.
    """

    kind: MutationKind = MutationKind.CREATE
    topics_per_request: int = 1
    partitions_per_topic: int = 1
    replication_factor: int = 1
    total_topics: int | None = None
    prefix: str = "kafka-quotas-load-test-"
    api_timeout_ms: int = 60_000
    retry_quota_violation: bool = True
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
    """The unit of an achieved rate and of the quota that it is held against."""

    BYTES = "bytes/s"
    REQUESTS = "requests/s"
    PARTITIONS = "partitions/s"
    CONNECTIONS = "connections/s"

    def text(self, rate: float) -> str:
        """A rate for people: `10.5 MB/s`, `4.98 requests/s`."""
        return f"{format_bytes(rate)}/s" if self is RateUnit.BYTES else f"{rate:.4g} {self.value}"


UNITS = {
    Workload.PRODUCE: RateUnit.BYTES,
    Workload.CONSUME: RateUnit.BYTES,
    Workload.REQUESTS: RateUnit.REQUESTS,
    Workload.MUTATE: RateUnit.PARTITIONS,
    Workload.CONNECT: RateUnit.CONNECTIONS,
}
"""The unit of each workload's rate."""
