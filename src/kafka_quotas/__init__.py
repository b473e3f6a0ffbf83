"""Set, explain, enforce and prove Apache Kafka client quotas.

For programs, `open_store` opens a store of quotas, `effective` returns what a client really gets there, `Plan` holds
what has to change, and `DecisionClient` asks a running daemon how long a client has to wait. Everything named in
`__all__` stays as it is within a major version, and is imported when first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_quotas.api import effective
    from kafka_quotas.core.changes.plan import Plan, PlannedChange, plan_changes
    from kafka_quotas.core.errors import KafkaQuotasError
    from kafka_quotas.core.model.entity import Entity
    from kafka_quotas.core.model.quota_filter import EVERYTHING, FilterComponent, Match, QuotaFilter
    from kafka_quotas.core.resolution.effective import EffectiveQuota
    from kafka_quotas.enforcement.control.client import DecisionClient
    from kafka_quotas.enforcement.decisions import Decision, DecisionError, DecisionRequest
    from kafka_quotas.stores import open_store
    from kafka_quotas.stores.settings import StoreSettings
    from kafka_quotas.stores.store import Alteration, AlterationResult, QuotaEntry, Store

__all__ = [
    "EVERYTHING",
    "Alteration",
    "AlterationResult",
    "Decision",
    "DecisionClient",
    "DecisionError",
    "DecisionRequest",
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

_NAMES = {
    "api": ("effective",),
    "core.changes.plan": ("Plan", "PlannedChange", "plan_changes"),
    "core.errors": ("KafkaQuotasError",),
    "core.model.entity": ("Entity",),
    "core.model.quota_filter": ("EVERYTHING", "FilterComponent", "Match", "QuotaFilter"),
    "core.resolution.effective": ("EffectiveQuota",),
    "enforcement.control.client": ("DecisionClient",),
    "enforcement.decisions": ("Decision", "DecisionError", "DecisionRequest"),
    "stores": ("open_store",),
    "stores.settings": ("StoreSettings",),
    "stores.store": ("Alteration", "AlterationResult", "QuotaEntry", "Store"),
}
"""The public names by the module that has them, below this package."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, which `kafka-quotas --help` never does."""
    module = next((module for module, names in _NAMES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only a program that uses the names pays for it

    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
