"""What a run found, as values: everything a report, a table, a chart or a later comparison needs."""

from dataclasses import dataclass

from kafka_quotas.loadtest.cycles import Direction
from kafka_quotas.loadtest.plan import EntityName
from kafka_quotas.loadtest.recorder import LatencySummary, ThrottleSummary
from kafka_quotas.loadtest.verdict import EntityVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondSample:
    """One second of one client: bytes/s on the wire and the longest throttle time announced in it."""

    second: int
    bytes_per_second: float
    throttle_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityResult:
    """One client's run. Counts and bytes are of the whole run, warm-up included; latencies are not.

    `enforcers` brokers kept the quota, each for itself; the verdict is on their sum. `unfinished` records were sent and
    still unanswered at the end. `wire_ratio` is bytes on the wire per payload byte.
    """

    name: EntityName
    direction: Direction
    topic: str
    enforcers: int
    verdict: EntityVerdict
    sent: int
    acked: int
    unfinished: int
    failures: tuple[tuple[str, int], ...]
    payload_bytes: int
    wire_ratio: float
    service: LatencySummary
    schedule_delay: LatencySummary
    response: LatencySummary
    throttle: ThrottleSummary
    seconds: tuple[SecondSample, ...]

    @property
    def ok(self) -> bool:
        """Whether its verdict is met and no record was lost."""
        return self.verdict.ok and not self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """A whole run. `interrupted`: it was ended early, and what is here was measured until then."""

    bootstrap: str
    started_ms: int
    elapsed_s: float
    warmup_s: float
    window_samples: int
    window_size_s: int
    record_size: int
    cpu_share: float
    interrupted: bool
    entities: tuple[EntityResult, ...]

    @property
    def ok(self) -> bool:
        """Whether the run was whole and every client got what it should."""
        return not self.interrupted and all(entity.ok for entity in self.entities)
