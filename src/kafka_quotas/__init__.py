"""Set, explain, enforce and prove Apache Kafka client quotas.

For programs, `open_store` opens a store of quotas, `effective` returns what a client really gets there, `Plan` holds
what has to change, and `DecisionClient` asks a running daemon how long a client has to wait. Everything that it
imports for type checkers stays as it is within a major version, and is imported when first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_quotas.api import effective as effective
    from kafka_quotas.core.changes.plan import Plan as Plan
    from kafka_quotas.core.changes.plan import PlannedChange as PlannedChange
    from kafka_quotas.core.changes.plan import plan_changes as plan_changes
    from kafka_quotas.core.errors import KafkaQuotasError as KafkaQuotasError
    from kafka_quotas.core.model.entity import EVERYTHING as EVERYTHING
    from kafka_quotas.core.model.entity import Entity as Entity
    from kafka_quotas.core.model.entity import FilterComponent as FilterComponent
    from kafka_quotas.core.model.entity import Match as Match
    from kafka_quotas.core.model.entity import QuotaFilter as QuotaFilter
    from kafka_quotas.core.resolution.effective import EffectiveQuota as EffectiveQuota
    from kafka_quotas.enforcement import Decision as Decision
    from kafka_quotas.enforcement import DecisionClient as DecisionClient
    from kafka_quotas.enforcement import DecisionError as DecisionError
    from kafka_quotas.enforcement import DecisionRequest as DecisionRequest
    from kafka_quotas.stores import Alteration as Alteration
    from kafka_quotas.stores import AlterationResult as AlterationResult
    from kafka_quotas.stores import QuotaEntry as QuotaEntry
    from kafka_quotas.stores import Store as Store
    from kafka_quotas.stores import StoreSettings as StoreSettings
    from kafka_quotas.stores import alterations_of as alterations_of
    from kafka_quotas.stores import open_store as open_store


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, which `kafka-quotas --help` never does."""
    from kafka_quotas.doors import lazy_names  # noqa: PLC0415 - only a program that uses the names pays for it

    return lazy_names(__name__)[0](name)


def __dir__() -> list[str]:
    """Return the public names."""
    from kafka_quotas.doors import lazy_names  # noqa: PLC0415 - as above

    return lazy_names(__name__)[1]()
