"""Workloads of clients, in the words that scenarios, options and results share.

Contract: pure values. A flood describes one of its requests, and its rate is the client's. The unit of a rate follows
from the workload.
"""

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from fractions import Fraction
from typing import Annotated

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.formats.typed_document import FieldSpec
from kafka_quotas.core.model.value_format import format_byte_rate, parse_bytes
from kafka_quotas.loadtest.plan.document import NOT_IN_FILE, InScenario, duration, parsed, text, whole


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


class Flood(InScenario):
    """The description of one request of a flood."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFlood(Flood):
    """One request of a flood."""

    api: Annotated[str, text("the API by Kafka's name", r"[A-Za-z]+", "Fetch")]
    max_wait_ms: Annotated[int, duration("how long a fetch may wait", in_ms=True, name="max-wait")] = 0
    min_bytes: Annotated[int, whole("how much a fetch waits for", least=0)] = 1
    max_bytes: Annotated[int, whole("how much a fetch takes")] = 1_048_576
    unauthorised: Annotated[bool, FieldSpec(about="whether it asks for a topic that the client may not touch")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationFlood(Flood):
    """One request of a mutation flood.

    **Source:** KIP-599, the admin client's part.
    """

    kind: Annotated[MutationKind, FieldSpec(about="create topics, delete them, or add partitions", required=True)] = (
        MutationKind.CREATE
    )
    topics_per_request: Annotated[int, whole("topics in one request", most=100_000, name="topics")] = 1
    partitions_per_topic: Annotated[int, whole("partitions of each topic", most=100_000, name="partitions")] = 1
    replication_factor: Annotated[int, whole("replicas of each partition", most=100)] = 1
    total_topics: Annotated[
        int | None, whole("topics in all; without it until the end", most=1_000_000, name="total")
    ] = None
    prefix: Annotated[str, NOT_IN_FILE] = "kafka-quotas-load-test-"
    """The start of the topics' names, which a running number follows."""
    api_timeout_ms: Annotated[
        int, duration("how long throttled topics are sent again", in_ms=True, zero=False, name="api-timeout")
    ] = 60_000
    retry_quota_violation: Annotated[
        bool, FieldSpec(about="whether throttled topics (error 89) are sent again after their throttle time")
    ] = True
    validate_only: Annotated[bool, FieldSpec(about="whether the broker only checks")] = False

    def __post_init__(self) -> None:
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


_HINT = "examples: max, 5MB/s, 200rec/s, 10req/s, 5conn/s, 2x-quota"
_RECORDS = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?:rec|records|req|requests|conn|connections)(?:/s|ps)", re.ASCII)
_MULTIPLE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*x-quota", re.ASCII)


class RateKind(Enum):
    """The unit of an offered rate."""

    MAX = "max"
    BYTES = "bytes/s"
    RECORDS = "arrivals/s"
    QUOTA_MULTIPLE = "x quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRate:
    """A rate as it was requested."""

    kind: RateKind
    figure: Fraction
    """The rate, 0 with `MAX`."""

    def arrivals_per_second(self, *, cost: int, quota: float | None) -> Fraction | None:
        """Return the arrivals per second, None for as many as possible.

        Args:
            cost: The cost of one arrival in the unit of the quota: a record its bytes, a request that creates topics
                their partitions, a connection 1.
            quota: The quota, None for none.
        """
        match self.kind:
            case RateKind.MAX:
                return None
            case RateKind.RECORDS:
                return self.figure
            case RateKind.BYTES:
                return self.figure / cost
            case RateKind.QUOTA_MULTIPLE:
                if quota is None:
                    raise UsageError("a rate in multiples of the quota needs a quota", hint="give --quota or --store")
                return self.figure * Fraction(quota) / cost

    def scaled(self, factor: float) -> "OfferedRate":
        """Return the rate times a factor, unless it follows a quota or is as much as possible."""
        if self.kind in (RateKind.MAX, RateKind.QUOTA_MULTIPLE):
            return self
        return OfferedRate(kind=self.kind, figure=self.figure * Fraction(factor).limit_denominator(1_000_000))


AS_FAST_AS_POSSIBLE = OfferedRate(kind=RateKind.MAX, figure=Fraction(0))
NO_LOAD = OfferedRate(kind=RateKind.RECORDS, figure=Fraction(0))


def parse_stage_target(text: str) -> OfferedRate:
    """Parse the rate that a stage leads to, which may be 0."""
    if text.strip() == "0":
        return NO_LOAD
    target = parse_offered_rate(text)
    if target.kind is RateKind.MAX:
        raise UsageError("a stage needs a rate to lead to, not max", hint="examples: 5MB/s, 200rec/s, 2x-quota, 0")
    return target


def parse_offered_rate(text: str) -> OfferedRate:
    """Parse a rate such as `max`, `5MB/s`, `200rec/s` or `2x-quota`.

    Raises:
        UsageError: The text is no rate, or the rate is 0.
    """
    stripped = text.strip()
    if stripped.lower() == "max":
        return AS_FAST_AS_POSSIBLE
    for pattern, kind in ((_RECORDS, RateKind.RECORDS), (_MULTIPLE, RateKind.QUOTA_MULTIPLE)):
        match = pattern.fullmatch(stripped)
        if match:
            return _positive(kind, Fraction(match["number"]), text)
    try:
        return _positive(RateKind.BYTES, parse_bytes(stripped), text)
    except InvalidQuotaError as error:
        raise UsageError(f"not a rate: {text!r}", hint=error.hint if "bits" in error.message else _HINT) from error


def _positive(kind: RateKind, figure: Fraction, text: str) -> OfferedRate:
    if figure <= 0:
        raise UsageError(f"a rate must be above 0, not {text!r}", hint=_HINT)
    return OfferedRate(kind=kind, figure=figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(InScenario):
    """A time in which a client's rate moves evenly to a target. A stage of 0 s jumps to it."""

    duration_s: Annotated[float, duration("how long it takes; 0s jumps", name="duration")]
    target: Annotated[OfferedRate, parsed("the rate at its end, as rate, or 0", parse_stage_target)]
