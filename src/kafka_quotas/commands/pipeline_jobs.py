"""The jobs `usage` and `replay` over a folder of events, for jobs that are built on them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.commands.pipeline_events import EventsRequest, EventsWatcher

if TYPE_CHECKING:
    from kafka_quotas.pipeline.replay_plan import ReplayPlan
    from kafka_quotas.pipeline.replay_tables import ReplayTables
    from kafka_quotas.pipeline.usage_tables import UsageTables
    from kafka_quotas.pipeline.usage_task import UsagePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderJobs:
    """The jobs over a folder of events: `kafka_quotas.pipeline.jobs.Jobs`."""

    request: EventsRequest
    watcher: EventsWatcher

    def usage(self, plan: "UsagePlan") -> "UsageTables":
        """What was used."""
        from kafka_quotas.commands.pipeline_usage import UsageRequest, usage  # noqa: PLC0415 - loads Arrow

        request = UsageRequest(events=self.request, quotas=plan.quotas, window=plan.window)
        return usage(request, self.watcher).tables

    def replay(self, plan: "ReplayPlan") -> "ReplayTables":
        """What would have happened."""
        from kafka_quotas.commands.pipeline_replay import ReplayRequest, replay  # noqa: PLC0415 - loads Arrow

        return replay(ReplayRequest(events=self.request, plan=plan), self.watcher).tables
