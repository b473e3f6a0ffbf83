"""Set, explain, enforce and prove Apache Kafka client quotas.

For programs: `open_store` opens a store of quotas, `effective` tells what a client really gets there, `Plan` says what
has to change; `DecisionClient` asks a running daemon how long somebody has to wait. Everything named in `__all__` stays
as it is within a major version; it is imported when first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_quotas.api import effective
    from kafka_quotas.core.describe_filter import EVERYTHING, FilterComponent, Match, QuotaFilter
    from kafka_quotas.core.effective import EffectiveQuota
    from kafka_quotas.core.entity import Entity
    from kafka_quotas.core.errors import KafkaQuotasError
    from kafka_quotas.core.plan import Plan, PlannedChange, plan_changes
    from kafka_quotas.enforcement.decision import Ask, Decision, DecisionError
    from kafka_quotas.enforcement.decision_client import DecisionClient
    from kafka_quotas.stores.open_store import open_store
    from kafka_quotas.stores.settings import StoreSettings
    from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Store

__all__ = [
    "EVERYTHING",
    "Alteration",
    "AlterationResult",
    "Ask",
    "Decision",
    "DecisionClient",
    "DecisionError",
    "EffectiveQuota",
    "Entity",
    "FilterComponent",
    "KafkaQuotasError",
    "Match",
    "Plan",
    "PlannedChange",
    "QuotaEntry",
    "QuotaFilter",
    "Store",
    "StoreSettings",
    "effective",
    "open_store",
    "plan_changes",
]

_MODULES = {
    "EVERYTHING": "core.describe_filter",
    "Alteration": "stores.store",
    "AlterationResult": "stores.store",
    "Ask": "enforcement.decision",
    "Decision": "enforcement.decision",
    "DecisionClient": "enforcement.decision_client",
    "DecisionError": "enforcement.decision",
    "EffectiveQuota": "core.effective",
    "Entity": "core.entity",
    "FilterComponent": "core.describe_filter",
    "KafkaQuotasError": "core.errors",
    "Match": "core.describe_filter",
    "Plan": "core.plan",
    "PlannedChange": "core.plan",
    "QuotaEntry": "stores.store",
    "QuotaFilter": "core.describe_filter",
    "Store": "stores.store",
    "StoreSettings": "stores.settings",
    "effective": "api",
    "open_store": "stores.open_store",
    "plan_changes": "core.plan",
}
"""Where each public name is, below this package."""


def __getattr__(name: str) -> Any:
    """The public name, imported now: `kafka-quotas --help` imports this package too and needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only a program that uses the names pays for it

    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
