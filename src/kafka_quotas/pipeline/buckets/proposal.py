"""The quota bucket of each recorded client under proposed or stored quotas, with its limit.

Buckets ("entities" in the tables) hold per cluster and broker. Kafka's resolution decides, with the user and client-id
levels 1 to 8 and static ones below. Where no quota of a type is set at all, every client has a bucket of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS, UNLIMITED, QuotaKey, QuotaType, suggest_key
from kafka_quotas.core.model.value_format import format_quota_value, parse_quota_value
from kafka_quotas.core.resolution.quota_resolver import AppliedQuota, Bucket, LevelKind, QuotaResolver

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_quotas.pipeline.buckets.charges import Charges


class DefaultScope(StrEnum):
    """The clients that a default quota holds for: each user, each client-id, or each pair of both."""

    USER = "user"
    CLIENT_ID = "client-id"
    PAIR = "pair"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns with the names of such a client."""
        return ("user", "client_id") if self is DefaultScope.PAIR else (self.value.replace("-", "_"),)

    @property
    def default_entity(self) -> Entity:
        """The entity of the default."""
        return Entity.from_pairs((column.replace("_", "-"), None) for column in self.columns)

    def entity(self, user: str | None, client_id: str | None) -> Entity:
        """Return the entity of one client."""
        names = {"user": user or "", "client_id": client_id or ""}
        return Entity.from_pairs((column.replace("_", "-"), names[column]) for column in self.columns)


class BucketName(NamedTuple):
    """A bucket at a broker, with both names of its client if it is of one client alone."""

    cluster: str
    broker_id: int
    user: str
    """User, empty if clients share the bucket across users."""
    client_id: str
    """Client-id, empty if clients share the bucket across client-ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Named quotas: a file's, a step's of a sweep, or a store's."""

    name: str
    entries: tuple[tuple[Entity, Mapping[str, float]], ...]
    static: tuple[tuple[Entity, Mapping[str, float]], ...] = ()
    """Quotas that rank below all others."""
    later: "tuple[tuple[int, Proposal], ...]" = ()
    """Quotas that take the place of all of these from a time on, in ms since 1970 and whole seconds, ascending."""


class ProposedQuotas:
    """One proposal for one quota type, which resolves any number of clients.

    `history` are the kinds of levels that were in use before.
    """

    def __init__(self, proposal: Proposal, quota_type: QuotaType, history: Iterable[LevelKind] = ()) -> None:
        self._resolver = QuotaResolver(history)
        stored, static = _limits(proposal.entries, quota_type), _limits(proposal.static, quota_type)
        for entity, limit in stored:
            if entity.user is not ABSENT or entity.client_id is not ABSENT:
                self._resolver.update(entity, limit)
        for entity, limit in static:
            self._resolver.update_static(entity, limit)
        kinds = self.kinds
        names = frozenset(entity for entity, _ in stored) if static or len(kinds) > 1 else frozenset()
        later, used = [], kinds
        for from_ms, each in proposal.later:
            later.append((from_ms, ProposedQuotas(each, quota_type, used)))
            used = later[-1][1].kinds
        self.later: Final = tuple(later)
        """The quotas of the type from later times on."""
        static_names = frozenset(entity for entity, _ in static)
        self.sharing: Final = (self._resolver.enabled, kinds, names, static_names, proposal.name if later else "")
        """Sharing of buckets: proposals with equal values differ in limits alone."""

    @property
    def kinds(self) -> frozenset[LevelKind]:
        """The kinds of levels in use."""
        return self._resolver.kinds_in_use

    @property
    def limits(self) -> bool:
        """Whether any quota of the type is proposed, at any time."""
        return self._resolver.enabled or any(each.limits for _, each in self.later)

    @property
    def partition_columns(self) -> frozenset[str]:
        """The columns that distinguish every two buckets: both, one, or none where that differs by client."""
        own = self._partition_columns()
        return own.intersection(*(each.partition_columns for _, each in self.later))

    def _partition_columns(self) -> frozenset[str]:
        _, kinds, _, static, _ = self.sharing
        if not self._resolver.enabled or (kinds == {LevelKind.PAIR} and not static):
            return frozenset({"user", "client_id"})
        if kinds == {LevelKind.USER} and not static:
            return frozenset({"user"})
        return frozenset({"client_id"}) if kinds <= {LevelKind.CLIENT} else frozenset()

    def bucket(self, user: str, client_id: str) -> Bucket:
        """Return the bucket of a client, its own where no quota is proposed."""
        return self._resolver.bucket(user, client_id) if self._resolver.enabled else (user, client_id)

    def match(self, bucket: Bucket) -> AppliedQuota | None:
        """Return the limit of a bucket with its level, None if it is unlimited."""
        return self._resolver.match(bucket) if self._resolver.enabled else None


class BucketRows:
    """The buckets of clients under proposals with equal sharing, numbered in order of appearance.

    A proposal whose quotas change with time must be the only one.
    """

    def __init__(self, quotas: Sequence[ProposedQuotas]) -> None:
        self._quotas = quotas
        self._later = list(quotas[0].later)
        self.names: list[BucketName] = []
        self.matches: list[tuple[AppliedQuota | None, ...]] = []
        """Limits of each row, one per proposal, as they were when it was last in use."""
        self.changes = 0
        """Differs after everything that changes `bounds`."""
        self._rows: dict[BucketName, int] = {}
        self._row_of_client: list[int] = []
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def placed(
        self, charges: "Charges", clients: Sequence[BucketName]
    ) -> "Iterator[tuple[NDArray[np.int32], Charges]]":
        """Yield the charges with their rows, those of each row by time, apart for each state of the quotas.

        Args:
            charges: Charges of one slice; slices are to come one after the other in time.
            clients: The clients of the last call, and new ones after them.
        """
        for part in self._by_quotas(charges):
            row_of_client = self.grow(clients)
            yield part.in_order(row_of_client[part.clients], row_count=len(self.names))

    def _by_quotas(self, charges: "Charges") -> "Iterator[Charges]":
        """Yield the charges under each quotas in force, and have these quotas in place meanwhile."""
        while self._later and charges.times_ms.size and charges.times_ms.max() >= self._later[0][0]:
            is_before = charges.times_ms < self._later[0][0]
            if is_before.any():
                yield charges.picked(is_before)
            charges = charges.picked(~is_before)
            self._quotas = [self._later.pop(0)[1]]
            self._buckets.clear()
            self._row_of_client.clear()
        if charges.times_ms.size:
            yield charges

    def grow(self, clients: Sequence[BucketName]) -> "NDArray[np.int32]":
        """Return the row of each client.

        Args:
            clients: The clients of the last call, and new ones after them.
        """
        import numpy as np  # noqa: PLC0415 - as above

        if len(clients) == len(self._row_of_client):
            return np.array(self._row_of_client, dtype=np.int32)
        self.changes += 1
        for client in clients[len(self._row_of_client) :]:
            pair = client.user, client.client_id
            bucket = self._buckets.get(pair)
            if bucket is None:
                bucket = self._buckets[pair] = self._quotas[0].bucket(*pair)
            name = BucketName(client.cluster, client.broker_id, *bucket)
            row = self._rows.setdefault(name, len(self.names))
            if row == len(self.names):
                self.names.append(name)
                self.matches.append(())
            self.matches[row] = tuple(each.match(bucket) for each in self._quotas)
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


DEFAULT_STEPS: Final = 10
MOST_STEPS: Final = 1000
_RANGE: Final = re.compile(r"(?P<low>[^.]+(?:\.\d[^.]*)?)\.\.(?P<high>.+)")
_HINT: Final = "--sweep producer_byte_rate=1MiB..64MiB, or producer_byte_rate=1MiB,5MiB,20MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A key and its ascending values."""

    key: QuotaKey
    values: tuple[float, ...]

    def proposals(self, default: DefaultScope, base: Proposal | None = None) -> tuple[Proposal, ...]:
        """Return one proposal for each value, with the default set to it and all other quotas of `base`."""
        return tuple(
            self._step(default.default_entity, value, base or Proposal(name="", entries=())) for value in self.values
        )

    def _step(self, entity: Entity, value: float, base: Proposal) -> Proposal:
        others = tuple((each, quotas) for each, quotas in base.entries if each != entity)
        own = next((dict(quotas) for each, quotas in base.entries if each == entity), {})
        return Proposal(
            name=f"{self.key.name}={format_quota_value(self.key, value)}",
            entries=(*others, (entity, {**own, self.key.name: value})),
            static=base.static,
            later=tuple((from_ms, self._step(entity, value, each)) for from_ms, each in base.later),
        )


def parse_sweep(text: str, *, steps: int = DEFAULT_STEPS) -> Sweep:
    """Parse `KEY=LOW..HIGH` (with steps of equal ratio) or `KEY=A,B,C`.

    A range has `steps` values, both ends included.

    Raises:
        UsageError: The key is not per client, a value is invalid, the range is empty, or the number of steps is out of
            range.
    """
    name, equals, values = text.partition("=")
    key = QUOTA_KEYS.get(name.strip())
    if not equals or key is None or key.for_ip:
        suggested = suggest_key(name)
        hint = f"did you mean {suggested.name}?" if suggested else _HINT
        raise UsageError(f"--sweep {text!r} names no quota key of clients", hint=hint)
    if match := _RANGE.fullmatch(values.strip()):
        low, high = (_value(key, match[end]) for end in ("low", "high"))
        if not low < high:
            raise UsageError(f"--sweep {text!r} is empty: {match['low']} is not below {match['high']}", hint=_HINT)
        return Sweep(key=key, values=_spaced(low, high, steps, whole=key.name.endswith("byte_rate")))
    return Sweep(key=key, values=tuple(sorted({_value(key, each) for each in values.split(",")})))


def _value(key: QuotaKey, text: str) -> float:
    value = parse_quota_value(key, text)
    if not value > 0:
        raise UsageError(f"{key.name} must be above 0, not {text.strip()}", hint=_HINT)
    return value


def _spaced(low: float, high: float, steps: int, *, whole: bool) -> tuple[float, ...]:
    """Return values of equal ratio from low to high, as whole numbers where the key needs them."""
    if not 2 <= steps <= MOST_STEPS:
        raise UsageError(f"a sweep has 2 to {MOST_STEPS} steps, not {steps}")
    factor = (high / low) ** (1 / (steps - 1))
    inner = (low * factor**step for step in range(1, steps - 1))
    values = [low, *(float(round(value)) if whole else float(f"{value:.6g}") for value in inner), high]
    return tuple(sorted(set(values)))
