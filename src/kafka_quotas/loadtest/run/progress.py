"""The state of a run in progress, for an observer."""

from collections.abc import Callable
from dataclasses import dataclass

from kafka_quotas.loadtest.plan.plan import ClientLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProgress:
    """One client's load and throttling so far."""

    entity: ClientLoad
    rate: float
    """Charge per second over the last quota window."""
    acked: int
    waiting: int
    """Records or requests without a response."""
    throttle_count: int
    throttle_sum_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The state of a run at one moment."""

    elapsed_s: float
    total_s: float
    warming_up: bool
    entities: tuple[ClientProgress, ...]


Watcher = Callable[[RunProgress], None]
"""Called several times a second, in the thread that started the run."""
