"""Which quotas to set, from recorded traffic."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.engine.runner import EventsRequest, EventsWatcher, OpenEvents, RecordedEvents, open_events
from kafka_quotas.pipeline.recommend.advice import RecommendPlan
from kafka_quotas.stores.files.atomic_write import save_text

if TYPE_CHECKING:
    from kafka_quotas.pipeline.recommend.job import Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendRequest:
    """The events, the scope and tolerance of the quotas, and the targets for file and tables."""

    events: EventsRequest
    plan: RecommendPlan
    file: Path | None = None
    """File for the recommended quotas, None for none."""
    tables: str | None = None
    """Folder for the table `recommendation`, None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendResult:
    """The recorded events, the recommendation, and the text of its file."""

    events: RecordedEvents
    recommendation: "Recommendation"
    text: str

    @property
    def is_short(self) -> bool:
        """Whether less was recorded than quotas should be set from."""
        return self.events.seconds < self.recommendation.plan.min_recorded_s


def recommend(request: RecommendRequest, watcher: EventsWatcher, *, step: Callable[[str], None]) -> RecommendResult:
    """Recommend quotas, and write the file and the tables where they are named.

    `step` is called with the name of each step as it begins.

    Raises:
        UsageError: The folder has no events, too few for a file, the cluster is unclear, or a priority has no client.
        KafkaQuotasError: A file can't be read or written.
    """
    with open_events(request.events, watcher) as events:
        return recommend_from(events, request, step=step)


def recommend_from(events: OpenEvents, request: RecommendRequest, *, step: Callable[[str], None]) -> RecommendResult:
    """Recommend quotas from open events, as `recommend` does."""
    from kafka_quotas.pipeline.recommend import job  # noqa: PLC0415 - loads the kernels
    from kafka_quotas.pipeline.recommend.quota_file import recommendation_table  # noqa: PLC0415
    from kafka_quotas.pipeline.tables.arrow import write_tables  # noqa: PLC0415

    seconds, least_s = events.recorded.seconds, request.plan.min_recorded_s
    if request.file is not None and events.recorded.count and seconds < least_s:
        raise UsageError(
            f"not enough data for a file of quotas: {seconds:,} s are recorded, {least_s:,} s are wanted",
            hint=f"record for longer; or --min-recorded {seconds}s, or no --file to see what there is",
        )
    with events.errors("summing up what was tried"):
        found = job.recommend(events, request.plan, step=step)
    text = job.recommended_file(found, events.recorded)
    if request.file is not None:
        save_text(request.file, [text])
    if request.tables is not None:
        table = recommendation_table(found.cluster, found.advices, request.plan.scope)
        write_tables(request.tables, {"recommendation": table})
    return RecommendResult(events=events.recorded, recommendation=found, text=text)
