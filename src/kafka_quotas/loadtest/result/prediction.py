"""Throttle times as the simulator has them from what a run recorded, held against those that were announced.

What is known of the events differs, and with it what the sum can prove. A raw client sees each response with its
charge, but nobody tells it the size of a fetch that was answered empty; our daemon's event log has each charge as the
daemon took it. librdkafka tells neither: there acknowledgements stand for requests, those of one look at the client
taken together, and their times are late by up to such a look.

Contract: pure. Each broker is simulated by itself, with an empty bucket (a full one of tokens) at the first event.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation, full_bucket_ms, new_limiter, replay
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.plan.workload import Workload

TOLERANCE = 0.1
"""How far the announced sum may be from the predicted one."""
_ROUNDING_MS = 1  # of each announced throttle time: the client's clock has other milliseconds than the broker's
_LOOK_MS = 50  # between two looks at librdkafka's acknowledgements, at most


class PredictionSource(StrEnum):
    """Where the events come from."""

    RESPONSES = "each response's charge"
    EVENT_LOG = "the daemon's event log"
    ACKNOWLEDGEMENTS = "acknowledgement batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one broker charged to a client's quota at a time (any origin), and the throttle time it announced for it.

    The amount is negative where a charge was taken back.
    """

    t_ms: int
    amount: float
    throttle_ms: int = 0
    broker: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted and the announced sum of throttle times, from `events` charges.

    `slack_ms` is what rounding may add up to, `grain_ms` how far coarse times may have led the prediction astray.
    `unchecked` is why there is nothing to compare, empty where there is.
    """

    source: PredictionSource
    events: int
    predicted_ms: float
    announced_ms: float
    slack_ms: float = 0.0
    grain_ms: float = 0.0
    unchecked: str = ""

    @property
    def allowed_ms(self) -> float:
        """How far the two sums may be apart."""
        return TOLERANCE * max(self.predicted_ms, 0.0) + self.slack_ms

    @property
    def state(self) -> State:
        """Whether they are near enough; unchecked where the events are too coarse to tell."""
        difference_ms = abs(self.announced_ms - self.predicted_ms)
        if self.unchecked or self.allowed_ms < difference_ms <= self.allowed_ms + self.grain_ms:
            return State.UNCHECKED
        return State.MET if difference_ms <= self.allowed_ms else State.NOT_MET

    @property
    def evidence(self) -> str:
        """The two sums, and what they were made of."""
        if self.unchecked:
            return self.unchecked
        return (
            f"{self.announced_ms / 1000:.2f} s announced, {self.predicted_ms / 1000:.2f} s predicted from "
            f"{self.events} events ({self.source.value}); allowed difference {self.allowed_ms / 1000:.2f} s"
            + (f", and {self.grain_ms / 1000:.2f} s are the grain of these events" if self.grain_ms else "")
        )


def predict(
    charges: Sequence[Charge],
    *,
    workload: Workload,
    quota: float,
    window: QuotaWindow,
    source: PredictionSource,
    announced_ms: float | None = None,
    late_ms: float = 0.0,
) -> Prediction:
    """The prediction for one client with a quota (per broker) of its own; `announced_ms` None sums the charges' own.

    `late_ms` is how late the charges' times usually are.
    """
    late_ms = float(_LOOK_MS) if source is PredictionSource.ACKNOWLEDGEMENTS else late_ms
    throttled = sum(charge.throttle_ms > 0 for charge in charges)
    predicted_ms, predictions = 0, 0
    for _, at_broker in groupby(sorted(charges, key=lambda charge: charge.broker), key=lambda charge: charge.broker):
        for throttle_ms in _throttle_times(list(at_broker), workload, quota, window):
            predicted_ms += throttle_ms
            predictions += 1
    return Prediction(
        source=source,
        events=len(charges),
        predicted_ms=float(predicted_ms),
        announced_ms=sum(charge.throttle_ms for charge in charges) if announced_ms is None else announced_ms,
        slack_ms=float(_ROUNDING_MS * max(throttled, predictions)),
        grain_ms=late_ms * predictions,
    )


def _throttle_times(charges: Sequence[Charge], workload: Workload, quota: float, window: QuotaWindow) -> Iterator[int]:
    """The throttle times above 0 of one broker's events."""
    is_mutation = workload is Workload.MUTATE
    limiter = new_limiter(
        Algorithm.TOKEN_BUCKET if is_mutation else Algorithm.RATE,
        bound=quota,
        samples=window.samples,
        window_ms=window.window_ms,
    )
    events = _events(charges, is_mutation=is_mutation)
    origin_ms = full_bucket_ms(samples=window.samples, window_ms=window.window_ms) if is_mutation else 0
    for decision in replay(events, limiter, usual=EventOperation.RECORD, origin_ms=origin_ms):
        if decision.outcome.throttle_ms > 0:
            yield decision.outcome.throttle_ms


def _events(charges: Iterable[Charge], *, is_mutation: bool) -> Iterator[Event]:
    """The charges as they were taken: a refused mutation is a check, and one that was accepted is not held back."""
    charges = list(charges)
    strict = is_mutation and any(charge.amount == 0 and charge.throttle_ms > 0 for charge in charges)
    for charge in charges:
        operation = None
        if charge.amount < 0:
            operation = EventOperation.UNRECORD
        elif strict:
            operation = EventOperation.RECORD_NOCHECK if charge.throttle_ms == 0 else None
        yield Event(t_ms=charge.t_ms, amount=abs(charge.amount), operation=operation)
