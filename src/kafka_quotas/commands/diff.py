"""What differs between files of quotas and a store, and for whom the difference counts."""

from dataclasses import dataclass

from kafka_quotas.commands.declared_plan import DeclaredPlan, Desire, declared_plan
from kafka_quotas.core.blast_radius import BlastRadius, blast_radius
from kafka_quotas.core.plan_file import KeptPlan
from kafka_quotas.stores.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffResult:
    """The plan with what it leaves alone, and the clients to whom something else applies afterwards."""

    store_url: str
    declared: DeclaredPlan
    radius: BlastRadius

    @property
    def differs(self) -> bool:
        """Whether anything has to change."""
        return bool(self.declared.plan.changes)

    def kept(self) -> KeptPlan:
        """The plan as it is kept in a file."""
        return KeptPlan(plan=self.declared.plan, store_url=self.store_url)


def diff(store: Store, desire: Desire) -> DiffResult:
    """What has to change in the store for the files to hold, and for whom what applies is different then.

    Raises what `declared_plan` raises.
    """
    found = declared_plan(store, desire)
    return DiffResult(store_url=store.url, declared=found, radius=blast_radius(found.stored, found.plan))
