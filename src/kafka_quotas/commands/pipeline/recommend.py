"""Which quotas to set, from recorded traffic."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_quotas.commands.pipeline.jobs import FolderJobs
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, OpenEvents, RecordedEvents, open_events
from kafka_quotas.pipeline.recommend.advice import Tolerance
from kafka_quotas.pipeline.recommend.capacity import Capacities, parse_capacities
from kafka_quotas.stores.files.atomic_write import save_text

if TYPE_CHECKING:
    from kafka_quotas.pipeline.buckets.default_scope import DefaultScope
    from kafka_quotas.pipeline.recommend.job import Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendRequest:
    """The events, whose quotas are wanted and what is tolerated; and where the file and the tables go, if anywhere.

    `cluster` None: the only one there is. `capacities` is a file in Cruise Control's format.
    """

    events: EventsRequest
    per: "DefaultScope"
    tolerance: Tolerance
    cluster: str | None = None
    capacities: Path | None = None
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW
    file: Path | None = None
    tables: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendResult:
    """What was looked at, what to set, and the file's text."""

    events: RecordedEvents
    recommendation: "Recommendation"
    text: str


def recommend(request: RecommendRequest, watcher: EventsWatcher, *, step: Callable[[str], None]) -> RecommendResult:
    """What to set; the file and the tables are written, where they are named. `step` is told what is being done.

    Raises `UsageError` for a folder of events that is none, for an unclear cluster and for a capacity file that is
    none, `KafkaQuotasError` where something can't be read or written.
    """
    with open_events(request.events, watcher) as events:
        return recommend_from(events, request, step=step)


def recommend_from(events: OpenEvents, request: RecommendRequest, *, step: Callable[[str], None]) -> RecommendResult:
    """The same from events that are open."""
    recorded = events.recorded
    from kafka_quotas.pipeline.recommend import job  # noqa: PLC0415 - loads the kernels
    from kafka_quotas.pipeline.recommend.quota_file import recommended_text  # noqa: PLC0415

    plan = job.RecommendPlan(
        cluster=request.cluster,
        per=request.per,
        seconds=recorded.seconds,
        tolerance=request.tolerance,
        capacities=None if request.capacities is None else _capacities(request.capacities),
        window=request.window,
        controller_window=request.controller_window,
    )
    found = job.recommend(FolderJobs(events=events), plan, step=step)
    text = "".join(recommended_text(found.advices, request.per, heading=_heading(recorded, found)))
    if request.file is not None:
        save_text(request.file, [text])
    if request.tables is not None:
        _write_table(request.tables, found)
    return RecommendResult(events=recorded, recommendation=found, text=text)


def _capacities(path: Path) -> Capacities:
    try:
        return parse_capacities(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or error}") from error


def _heading(events: RecordedEvents, found: "Recommendation") -> list[str]:
    tolerance = found.plan.tolerance
    return [
        f"Recommended from {events.count:,} events of {events.seconds:,} seconds, cluster {found.cluster}.",
        f"At most {tolerance.clients_share:.2%} of the clients need more than the default.",
        f"Nobody is held back for more than {tolerance.time_share:.2%} of its active time.",
        "Every limit holds at each broker for itself.",
    ]


def _write_table(folder: Path, found: "Recommendation") -> None:
    import pyarrow as pa  # noqa: PLC0415 - only this loads Arrow

    from kafka_quotas.pipeline.recommend.evidence import recommendation_rows  # noqa: PLC0415
    from kafka_quotas.pipeline.tables.arrow import write_tables  # noqa: PLC0415
    from kafka_quotas.pipeline.tables.schemas import RECOMMENDATION  # noqa: PLC0415

    rows = recommendation_rows(found.cluster, found.advices, found.plan.per)
    table = pa.Table.from_pylist(rows, schema=RECOMMENDATION.arrow_schema())
    write_tables(folder, {"recommendation": table})
