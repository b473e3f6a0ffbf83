"""The effect of proposed quotas on recorded traffic."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, RecordedEvents, open_events

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_quotas.pipeline.replay.task import ReplayPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The events, the proposals, and the target for the tables."""

    events: EventsRequest
    plan: "ReplayPlan"
    out: str | None = None
    """Folder for `entities` and `whatif`, and `throttle_spans` if the plan asks for it; None for none."""
    limit: int | None = None
    """Most rows in the result, None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The replayed events, and what happened to those throttled longest."""

    events: RecordedEvents
    entities: "pa.Table"
    """Rows of `entities` that `ranked` names."""
    ranked: "pa.Table"
    """Rows of `whatif` by proposal and model, those throttled longest first."""
    rows: int
    """Number of rows of `whatif`."""
    throttled: int
    """Number of those with a throttle time."""


def replay(request: ReplayRequest, watcher: EventsWatcher) -> ReplayResult:
    """Replay recorded events, and write the tables where a folder is named.

    Raises:
        UsageError: The folder has no events.
        KafkaQuotasError: A file can't be read or written.
    """
    with open_events(request.events, watcher) as events:
        from kafka_quotas.pipeline.replay import job  # noqa: PLC0415 - loads the kernels

        outcomes = job.replay(events, request.plan)
        with events.errors("ranking what was replayed"):
            rows, throttled = outcomes.counts()
            ranked = outcomes.ranked(request.limit)
            known = None if request.limit is None else ranked["entity_id"].unique().to_pylist()
            entities = outcomes.entities(known)
        if request.out is not None:
            with events.errors(f"writing the tables of the replay to {request.out}"):
                outcomes.write(request.out, has_spans=request.plan.throttle_spans)
    return ReplayResult(events=events.recorded, entities=entities, ranked=ranked, rows=rows, throttled=throttled)
