"""Who counts as a client when quotas are recommended: a user, a client-id, or the pair of both."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kafka_quotas.core.entity import ABSENT, Entity
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.pipeline.resolve import Proposal

RECOMMENDED: Final = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
"""The quota types that brokers enforce, in the order they are shown."""


class Per(StrEnum):
    """What a default quota is a default of."""

    USER = "user"
    CLIENT_ID = "client-id"
    PAIR = "pair"

    @property
    def default_entity(self) -> Entity:
        """The entity of the default."""
        user = ABSENT if self is Per.CLIENT_ID else None
        client_id = ABSENT if self is Per.USER else None
        return Entity.of(user=user, client_id=client_id)

    def entity(self, user: str | None, client_id: str | None) -> Entity:
        """The entity of one client."""
        return Entity.of(
            user=ABSENT if self is Per.CLIENT_ID else user or "",
            client_id=ABSENT if self is Per.USER else client_id or "",
        )


def defaults(name: str, per: Per, limits: Mapping[QuotaType, float]) -> Proposal:
    """The proposal that has these limits as defaults and nothing else: every client has a bucket of its own."""
    return Proposal(
        name=name, entries=((per.default_entity, {kind.key.name: value for kind, value in limits.items()}),)
    )


def told_apart(per: Per) -> Proposal:
    """The proposal under which every client has a bucket of its own and none is limited."""
    return defaults("clients", per, {kind: float(kind.key.unlimited) for kind in RECOMMENDED})
