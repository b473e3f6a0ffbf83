"""Proposals under which every client has a bucket of its own."""

from collections.abc import Mapping
from typing import Final

from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.pipeline.per import Per
from kafka_quotas.pipeline.resolve import Proposal

RECOMMENDED: Final = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
"""The quota types that brokers enforce, in the order they are shown."""


def defaults(name: str, per: Per, limits: Mapping[QuotaType, float]) -> Proposal:
    """The proposal that has these limits as defaults and nothing else: every client has a bucket of its own."""
    return Proposal(
        name=name, entries=((per.default_entity, {kind.key.name: value for kind, value in limits.items()}),)
    )


def told_apart(per: Per) -> Proposal:
    """The proposal under which every client has a bucket of its own and none is limited."""
    return defaults("clients", per, {kind: float(kind.key.unlimited) for kind in RECOMMENDED})
