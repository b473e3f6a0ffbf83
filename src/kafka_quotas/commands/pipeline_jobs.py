"""The jobs `usage` and `replay` over a folder of events, for jobs that are built on them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.commands.pipeline_events import OpenEvents

if TYPE_CHECKING:
    from kafka_quotas.pipeline.replay_plan import ReplayPlan
    from kafka_quotas.pipeline.replay_tables import ReplayTables
    from kafka_quotas.pipeline.usage_tables import UsageTables
    from kafka_quotas.pipeline.usage_task import UsagePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderJobs:
    """The jobs over a folder that is open: `kafka_quotas.pipeline.jobs.Jobs`."""

    events: OpenEvents

    def usage(self, plan: "UsagePlan") -> "UsageTables":
        """What was used."""
        from kafka_quotas.commands.pipeline_usage import use  # noqa: PLC0415 - loads Arrow

        return use(self.events, plan)

    def replay(self, plan: "ReplayPlan") -> "ReplayTables":
        """What would have happened."""
        from kafka_quotas.commands.pipeline_replay import replayed  # noqa: PLC0415 - loads Arrow

        return replayed(self.events, plan)
