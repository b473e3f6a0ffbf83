"""The jobs `usage` and `replay` over a folder of events, for jobs that are built on them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_quotas.pipeline.engine.runner import OpenEvents

if TYPE_CHECKING:
    from kafka_quotas.pipeline.replay.plan import ReplayPlan
    from kafka_quotas.pipeline.replay.tables import ReplayTables
    from kafka_quotas.pipeline.usage.tables import UsageTables
    from kafka_quotas.pipeline.usage.task import UsagePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderJobs:
    """The jobs over an open folder, as `kafka_quotas.pipeline.jobs.Jobs`."""

    events: OpenEvents

    def usage(self, plan: "UsagePlan") -> "UsageTables":
        """Return the usage of every bucket."""
        from kafka_quotas.commands.pipeline.usage import use  # noqa: PLC0415 - loads Arrow

        return use(self.events, plan)

    def replay(self, plan: "ReplayPlan") -> "ReplayTables":
        """Return the effect of proposed quotas."""
        from kafka_quotas.commands.pipeline.replay import replayed  # noqa: PLC0415 - loads Arrow

        return replayed(self.events, plan)
