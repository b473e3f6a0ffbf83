"""The quota bucket of each recorded client under proposed or stored quotas, with its limit.

Buckets ("entities" in the tables) hold per cluster and broker. Kafka's resolution decides, with the user and client-id
levels 1 to 8 and static ones below. Where no quota of a type is set at all, every client has a bucket of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.quotas.quota_bucket import UNLIMITED
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota, Bucket, LevelKind, QuotaResolver

if TYPE_CHECKING:  # proposals are made from options before anybody knows whether NumPy is there
    import numpy as np
    from numpy.typing import NDArray

    from kafka_quotas.pipeline.buckets.charges import ChargedClient


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


class BucketName(NamedTuple):
    """A bucket at a broker."""

    cluster: str
    broker_id: int
    user: str
    """User, empty where clients share the bucket across users."""
    client_id: str
    """Client-id, empty where clients share the bucket across client-ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Named quotas: a file's, a step's of a sweep, or a store's."""

    name: str
    entries: tuple[tuple[Entity, Mapping[str, float]], ...]
    static: tuple[tuple[Entity, Mapping[str, float]], ...] = ()
    """Quotas that rank below all others."""


class ProposedQuotas:
    """One proposal for one quota type, which resolves any number of clients."""

    def __init__(self, proposal: Proposal, quota_type: QuotaType) -> None:
        self._resolver = QuotaResolver()
        stored, static = _limits(proposal.entries, quota_type), _limits(proposal.static, quota_type)
        for entity, limit in stored:
            if entity.user is not ABSENT or entity.client_id is not ABSENT:
                self._resolver.update(entity, limit)
        for entity, limit in static:
            self._resolver.update_static(entity, limit)
        kinds = self._resolver.kinds_in_use
        names = frozenset(entity for entity, _ in stored) if static or len(kinds) > 1 else frozenset()
        self.sharing: Final = (self.limits, kinds, names, frozenset(entity for entity, _ in static))
        """Sharing of buckets: proposals with equal values differ in limits alone."""

    @property
    def limits(self) -> bool:
        """Whether any quota of the type is proposed."""
        return self._resolver.enabled

    @property
    def partition_columns(self) -> frozenset[str]:
        """The columns that distinguish every two buckets: both, one, or none where that differs by client."""
        _, kinds, _, static = self.sharing
        if not self.limits or (kinds == {LevelKind.PAIR} and not static):
            return frozenset({"user", "client_id"})
        if kinds == {LevelKind.USER} and not static:
            return frozenset({"user"})
        return frozenset({"client_id"}) if kinds <= {LevelKind.CLIENT} else frozenset()

    def bucket(self, user: str, client_id: str) -> Bucket:
        """Return the bucket of a client, its own where no quota is proposed."""
        return self._resolver.bucket(user, client_id) if self._resolver.enabled else (user, client_id)

    def match(self, bucket: Bucket) -> AppliedQuota | None:
        """Return the limit of a bucket with its level, None where it is unlimited."""
        return self._resolver.match(bucket) if self._resolver.enabled else None


class BucketRows:
    """The buckets of clients under proposals with equal sharing, numbered in order of appearance."""

    def __init__(self, quotas: Sequence[ProposedQuotas]) -> None:
        self._quotas = quotas
        self.names: list[BucketName] = []
        self.matches: list[tuple[AppliedQuota | None, ...]] = []
        """Limits of each row, one per proposal."""
        self._rows: dict[BucketName, int] = {}
        self._row_of_client: list[int] = []
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def grow(self, clients: "Sequence[ChargedClient]") -> "NDArray[np.int32]":
        """Return the row of each client.

        Args:
            clients: The clients of the last call, and new ones after them.
        """
        import numpy as np  # noqa: PLC0415 - as above

        for client in clients[len(self._row_of_client) :]:
            pair = client.user, client.client_id
            bucket = self._buckets.get(pair)
            if bucket is None:
                bucket = self._buckets[pair] = self._quotas[0].bucket(*pair)
            name = BucketName(client.cluster, client.broker_id, *bucket)
            row = self._rows.setdefault(name, len(self.names))
            if row == len(self.names):
                self.names.append(name)
                self.matches.append(tuple(each.match(bucket) for each in self._quotas))
            self._row_of_client.append(row)
        return np.array(self._row_of_client, dtype=np.int32)

    def bounds(self) -> "NDArray[np.float64]":
        """Return the limits for kernels, rows by proposals."""
        import numpy as np  # noqa: PLC0415 - as above

        limits = [[UNLIMITED if each is None else each.limit for each in row] for row in self.matches]
        return np.array(limits, dtype=np.float64).reshape(-1, len(self._quotas))


def _limits(entries: Iterable[tuple[Entity, Mapping[str, float]]], quota_type: QuotaType) -> list[tuple[Entity, float]]:
    key = quota_type.key.name
    return [(entity, quotas[key]) for entity, quotas in entries if key in quotas]


def partition_columns(proposals: Iterable[Proposal]) -> tuple[str, ...]:
    """Return the columns whose equal values keep together clients that may share any bucket."""
    names = frozenset({"user", "client_id"})
    for proposal in proposals:
        for quota_type in QuotaType:
            names &= ProposedQuotas(proposal, quota_type).partition_columns
    return ("cluster", "broker_id", *sorted(names, reverse=True))
