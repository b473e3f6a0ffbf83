"""The scope of a default quota, which decides what counts as one client."""

from enum import StrEnum

from kafka_quotas.core.model.entity import ABSENT, Entity


class DefaultScope(StrEnum):
    """The clients that a default quota holds for: each user, each client-id, or each pair of both."""

    USER = "user"
    CLIENT_ID = "client-id"
    PAIR = "pair"

    @property
    def default_entity(self) -> Entity:
        """The entity of the default."""
        user = ABSENT if self is DefaultScope.CLIENT_ID else None
        client_id = ABSENT if self is DefaultScope.USER else None
        return Entity.of(user=user, client_id=client_id)

    def entity(self, user: str | None, client_id: str | None) -> Entity:
        """Return the entity of one client."""
        return Entity.of(
            user=ABSENT if self is DefaultScope.CLIENT_ID else user or "",
            client_id=ABSENT if self is DefaultScope.USER else client_id or "",
        )
