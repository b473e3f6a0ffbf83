"""The quotas that a stream is measured against: bucket and limit of a client for each quota type."""

from collections.abc import Iterable, Mapping

from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.quota_resolver import QuotaResolver


class LiveQuotas:
    """Quotas by entity, as stored or as declared, with static ones ranked below them."""

    def __init__(
        self,
        entries: Iterable[tuple[Entity, Mapping[str, float]]] = (),
        *,
        static: Iterable[tuple[Entity, Mapping[str, float]]] = (),
    ) -> None:
        self._resolvers = {quota_type: QuotaResolver() for quota_type in QuotaType}
        for entity, quotas in entries:
            if entity.ip is ABSENT:
                for quota_type, limit in _limits(quotas):
                    self._resolvers[quota_type].update(entity, limit)
        for entity, quotas in static:
            for quota_type, limit in _limits(quotas):
                self._resolvers[quota_type].update_static(entity, limit)

    def resolve(self, quota_type: QuotaType, user: str, client_id: str) -> tuple[str, str, float | None]:
        """Return user and client-id of a client's bucket, and the bucket's limit.

        Returns:
            User and client-id are empty where the bucket is shared across them. The limit is None for none. Where no
            quota of the type is set at all, each pair of user and client-id is a bucket.
        """
        resolver = self._resolvers[quota_type]
        if not resolver.enabled:
            return user, client_id, None
        bucket = resolver.bucket(user, client_id)
        return *bucket, resolver.limit(bucket)


def _limits(quotas: Mapping[str, float]) -> list[tuple[QuotaType, float]]:
    return [(each, quotas[each.key.name]) for each in QuotaType if each.key.name in quotas]
