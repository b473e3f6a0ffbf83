"""The two jobs that further ones are built on, for either engine."""

from typing import Protocol

from kafka_quotas.pipeline.replay.plan import ReplayPlan
from kafka_quotas.pipeline.replay.tables import ReplayTables
from kafka_quotas.pipeline.usage.tables import UsageTables
from kafka_quotas.pipeline.usage.task import UsagePlan


class Jobs(Protocol):
    """The jobs over one folder of events."""

    def usage(self, plan: UsagePlan) -> UsageTables:
        """Return the usage of every bucket."""
        ...

    def replay(self, plan: ReplayPlan) -> ReplayTables:
        """Return the effect of proposed quotas."""
        ...
