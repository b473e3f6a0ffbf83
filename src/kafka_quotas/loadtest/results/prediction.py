"""Prediction of throttle times by the simulator, from a run's events, to compare with the announced.

The sources of events differ in what they prove. A raw client sees each response with its charge, but not the size of a
fetch that was answered empty. Our daemon's event log has each charge as the daemon took it. librdkafka reports neither:
its acknowledgements replace requests, those between two polls of the client are taken together, and their times are
late by up to one poll.

Contract: pure. Each broker is simulated by itself, with an empty bucket (a full one of tokens) at the first event.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Protocol

from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.simulation import Algorithm, Event, EventOperation, full_bucket_ms, new_limiter, replay
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest.judgement import State
from kafka_quotas.loadtest.measurement.traces import Charge
from kafka_quotas.loadtest.plan.plan import ClientLoad, EntityKey
from kafka_quotas.loadtest.plan.workload import Workload

TOLERANCE = 0.1
"""The allowed distance of the announced sum from the predicted one, as a share."""
_ROUNDING_MS = 1  # of each announced throttle time: the client's clock has other milliseconds than the broker's
_LOOK_MS = 50  # between two looks at librdkafka's acknowledgements, at most


OUR_CORE = "our core"
"""The judge that a run always has, which would share a defect of the daemon's algorithms."""


class ThrottleJudge(Protocol):
    """Another algorithm than our core's that computes throttle times, such as Kafka's own classes."""

    @property
    def name(self) -> str:
        """Who judges, for the evidence."""
        ...

    def throttle_times(
        self, events: Sequence[Event], *, workload: Workload, quota: float, window: QuotaWindow
    ) -> Sequence[int] | None:
        """Return the throttle time in ms of every recorded event of one bucket, None where there is no answer."""
        ...


class PredictionSource(StrEnum):
    """The source of the events."""

    RESPONSES = "each response's charge"
    EVENT_LOG = "the daemon's event log"
    ACKNOWLEDGEMENTS = "acknowledgement batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted and the announced sum of throttle times."""

    source: PredictionSource
    events: int
    predicted_ms: float
    announced_ms: float
    slack_ms: float = 0.0
    """The most that rounding may add up to."""
    grain_ms: float = 0.0
    """The error that coarse times may have caused."""
    judge: str = OUR_CORE
    """Whose algorithm predicted."""
    unchecked: str = ""
    """Why there is nothing to compare, empty where there is."""

    @property
    def allowed_ms(self) -> float:
        """The largest difference between the two sums."""
        return TOLERANCE * max(self.predicted_ms, 0.0) + self.slack_ms

    @property
    def state(self) -> State:
        """Met where the sums are near enough, unchecked where the events are too coarse."""
        difference_ms = abs(self.announced_ms - self.predicted_ms)
        if self.unchecked:
            return State.UNCHECKED
        if difference_ms <= self.allowed_ms:
            return State.MET
        # A busy machine tells of acknowledgements late and in heaps, which count as more than their requests did.
        is_heap = self.source is PredictionSource.ACKNOWLEDGEMENTS and self.announced_ms < self.predicted_ms
        return State.UNCHECKED if is_heap or difference_ms <= self.allowed_ms + self.grain_ms else State.NOT_MET

    @property
    def evidence(self) -> str:
        """The two sums and their source."""
        if self.unchecked:
            return self.unchecked
        predicted = f"{self.predicted_ms / 1000:.2f} s predicted by {self.judge}"
        source = f"{self.events} events ({self.source.value})"
        return (
            f"{self.announced_ms / 1000:.2f} s announced, {predicted} from {source}; "
            f"allowed difference {self.allowed_ms / 1000:.2f} s"
            + (f" (plus {self.grain_ms / 1000:.2f} s of timing uncertainty)" if self.grain_ms else "")
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
    judge: ThrottleJudge | None = None,
) -> Prediction:
    """Return the prediction for one client with a quota of its own, per broker.

    `announced_ms` is the announced sum, None for that of the charges, and `late_ms` the usual delay of their times.
    Charges before the load are in the buckets and in no sum. Where `judge` has no answer for one of the brokers, our
    core judges all of them.
    """
    # The times of acknowledgements are those of polls, so each may be late by the pause between two.
    late_ms = float(_LOOK_MS) if source is PredictionSource.ACKNOWLEDGEMENTS else late_ms
    during = [charge for charge in charges if charge.t_ms >= 0]
    throttled = sum(charge.throttle_ms > 0 for charge in during)
    brokers = [
        list(of_one)
        for _, of_one in groupby(sorted(charges, key=lambda charge: charge.broker), key=lambda charge: charge.broker)
    ]
    kept = [list(_events(each, is_mutation=workload is Workload.MUTATE)) for each in brokers]

    def predicted(throttle_times: Callable[..., Sequence[int] | None]) -> list[int] | None:
        found: list[int] = []
        for events in kept:
            answer = throttle_times(events, workload=workload, quota=quota, window=window)
            if answer is None:
                return None
            recorded = (event for event in events if event.operation is None)
            times = zip(recorded, answer, strict=True)
            found += [throttle_ms for event, throttle_ms in times if event.t_ms >= 0 and throttle_ms > 0]
        return found

    found = None if judge is None else predicted(judge.throttle_times)
    name = OUR_CORE if found is None or judge is None else judge.name
    if found is None:
        found = predicted(_throttle_times) or []
    predicted_ms, predictions = sum(found), len(found)
    return Prediction(
        source=source,
        events=len(during),
        predicted_ms=float(predicted_ms),
        announced_ms=sum(charge.throttle_ms for charge in during) if announced_ms is None else announced_ms,
        slack_ms=float(_ROUNDING_MS * max(throttled, predictions)),
        grain_ms=late_ms * predictions,
        judge=name,
    )


def _throttle_times(
    events: Sequence[Event], *, workload: Workload, quota: float, window: QuotaWindow
) -> Sequence[int] | None:
    is_mutation = workload is Workload.MUTATE
    algorithm, dimensions = Algorithm.RATE, {"samples": window.samples, "window_ms": window.window_ms}
    origin_ms = -min(events[0].t_ms, 0)
    if is_mutation:
        algorithm, origin_ms = Algorithm.TOKEN_BUCKET, origin_ms + full_bucket_ms(**dimensions)
    decisions = replay(
        events, new_limiter(algorithm, bound=quota, **dimensions), usual=EventOperation.RECORD, origin_ms=origin_ms
    )
    return [each.outcome.throttle_ms for each in decisions if each.operation is EventOperation.RECORD]


def _events(charges: Iterable[Charge], *, is_mutation: bool) -> Iterator[Event]:
    """Yield the charges as events: a refused mutation is a check, an accepted one not throttled."""
    charges = list(charges)
    strict = is_mutation and any(charge.charged == 0 and charge.throttle_ms > 0 for charge in charges)
    for charge in charges:
        operation = None
        if charge.charged < 0:
            operation = EventOperation.UNRECORD
        elif strict:
            operation = EventOperation.RECORD_NOCHECK if charge.throttle_ms == 0 else None
        yield Event(t_ms=charge.t_ms, amount=abs(charge.charged), operation=operation)


_EVENT_LOG_VERSION: Final = 1
_LIMITED_BY: Final = {
    "produce": (Workload.PRODUCE, "bytes"),
    "fetch": (Workload.CONSUME, "bytes"),
    "controller_mutation": (Workload.MUTATE, "mutations"),
}
"""The workload that a quota type limits, and the field with the charge, by quota type."""


def logged_charges(
    folder: Path, entities: Sequence[ClientLoad], *, started_ms: int, ended_ms: int
) -> Mapping[EntityKey, Sequence[Charge]]:
    """Return the charges of every client in the event log, in order.

    Charges from before the load are among them, with times below 0: they are still in the bucket when it begins, such
    as those of a client that ran alone first. Clients without a charge are left out. A folder that does not exist has
    none.

    Args:
        folder: The folder of the event log, with one of its own for each daemon.
        entities: The clients of the load.
        started_ms: When the load began, in milliseconds since the epoch: 0 of the times that are returned.
        ended_ms: When it ended, in milliseconds since the epoch. Later charges are left out.
    """
    keys = {(each.name.user or ANONYMOUS, each.name.client_id or "", each.workload): each.key for each in entities}
    found: dict[EntityKey, list[Charge]] = {}
    for row in _rows(folder):
        kind = _LIMITED_BY.get(row.get("quota_type", ""))
        if kind is None or row.get("is_exempt") or row["ts_ms"] > ended_ms:
            continue
        workload, amount = kind
        key = keys.get((row["user"], row["client_id"], workload))
        if key is not None:
            found.setdefault(key, []).append(
                Charge(
                    t_ms=row["ts_ms"] - started_ms,
                    charged=row[amount],
                    throttle_ms=row["throttle_ms"],
                    broker=row["broker_id"] or 0,
                )
            )
    return found


def _rows(folder: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.rglob("events-*.jsonl")):
        with path.open(encoding="ascii") as lines:
            for line in lines:
                row: Mapping[str, Any] = load_json(line)
                if row.get("v") == _EVENT_LOG_VERSION:
                    yield row
