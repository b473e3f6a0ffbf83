"""How a run stands, for whoever watches it."""

from collections.abc import Callable
from dataclasses import dataclass

from kafka_quotas.loadtest.plan.plan import ClientLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProgress:
    """One client so far: what it is charged per second over the last quota window, and its throttling."""

    entity: ClientLoad
    rate: float
    acked: int
    waiting: int
    throttle_count: int
    throttle_sum_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The run so far; seconds."""

    elapsed_s: float
    total_s: float
    warming_up: bool
    entities: tuple[ClientProgress, ...]


Watcher = Callable[[RunProgress], None]
"""Called several times a second, in the thread that started the run."""
