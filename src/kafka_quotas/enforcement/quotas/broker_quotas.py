"""The quotas of one upstream broker: quotas hold per broker, so each broker has buckets of its own.

Clients of different modes draw on different buckets, and clients whose scope is the cluster on those of the cluster,
which is one more `BrokerQuotas` that all brokers share.
Invariants: all connections to one broker share one `BrokerQuotas`, and so its buckets, whichever listener they came by;
every manager of a type, of whatever mode and broker, has the same `QuotaResolver`, so that a limit is set once;
`version` differs after each change that makes another `ClientLimits` of somebody.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.bucket_pool import BucketPool
from kafka_quotas.core.quotas.mutation_bucket import MutationAlgorithm
from kafka_quotas.core.quotas.quota_manager import BucketState, ClientQuotaManager, Limiter, QuotaType, RateAlgorithm
from kafka_quotas.core.resolution.quota_resolver import QuotaResolver
from kafka_quotas.enforcement.config.client_policy import Mode, PolicyTable, Scope
from kafka_quotas.enforcement.quotas.client_limits import ClientLimits
from kafka_quotas.enforcement.quotas.producer_sequences import ProducerSequences

MAX_CLIENTS: Final = 10_000
"""How many clients' handles are kept to be found again, so that nobody can make them grow without end."""
MAX_CLIENT_NAME: Final = 256
"""Handles of clients with longer names than this are made anew for each connection, for the same reason."""
ENFORCED: Final = tuple(QuotaType)
"""The quota types that the daemon enforces."""
_TIMED: Final = (QuotaType.REQUEST, QuotaType.REQUEST_RATE)

Limits: TypeAlias = Mapping[QuotaType, QuotaResolver]
"""The limits in force by quota type, which all brokers and modes share."""


def new_limits() -> Limits:
    """Return no limits, for every type that the daemon enforces."""
    return {quota_type: QuotaResolver() for quota_type in ENFORCED}


def update_limit(limits: Limits, quota_type: QuotaType, entity: Entity, limit: float | None, *, static: bool) -> None:
    """Set the limit of an entity, or remove it (None); `static` ones lie below all others."""
    resolver = limits[quota_type]
    if static:
        resolver.update_static(entity, limit)
    else:
        resolver.update(entity, limit)


class BrokerQuotas:
    """The quota managers of one broker; `cluster` has those of all brokers together."""

    def __init__(
        self,
        window: QuotaWindow,
        *,
        mutation_window: QuotaWindow | None = None,
        mutations: MutationAlgorithm = MutationAlgorithm.TOKEN_BUCKET,
        book: PolicyTable | None = None,
        cluster: "BrokerQuotas | None" = None,
        limits: Limits | None = None,
        pool: BucketPool | None = None,
    ) -> None:
        """Make the quotas of a broker without buckets.

        Args:
            window: over what rates are measured.
            mutation_window: the same for controller mutations; None: as `window`.
            mutations: how controller mutations are measured.
            book: the terms of clients.
            cluster: the quotas of all brokers together, None where these are they.
            limits: the limits that brokers share, None for limits of its own.
            pool: where the buckets of all brokers are counted, None for a pool of its own without a bound.
        """
        self._window = window
        self._mutation_window = mutation_window or window
        self._mutations = mutations
        self._book = book or PolicyTable()
        self._cluster = cluster
        self._limits = new_limits() if limits is None else limits
        self._pool = BucketPool() if pool is None else pool
        self._managers: dict[Mode, dict[QuotaType, ClientQuotaManager]] = {}
        self._unconfigured = self._made(Mode.KAFKA, new_limits())
        self._clients: dict[tuple[str, str], ClientLimits] = {}
        self._keeps_clients = False
        self.order = ProducerSequences()
        """The numbered batches that were refused, so that those behind them are."""
        self.version = 0
        """Differs after every change that may give a client other limits or terms."""
        self.counts_requests = False
        """Whether any client may have a limit on requests or their time."""
        self.times_requests = False
        """Whether any client may have a limit on the time of requests."""
        self.limits_mutations = False
        """Whether any client may have a limit on creating, growing and deleting topics."""
        self.limits_changed(ENFORCED)

    def manager(self, quota_type: QuotaType, mode: Mode = Mode.KAFKA) -> ClientQuotaManager:
        """The manager of one of the `ENFORCED` types, for clients of a mode."""
        return self._managers_of(mode)[quota_type]

    def buckets(self, quota_type: QuotaType, now_ms: int) -> Iterator[tuple[Mode, BucketState]]:
        """Every bucket of a type with the mode of its clients; asking changes none."""
        for mode, managers in self._managers.items():
            for state in managers[quota_type].buckets(now_ms):
                yield mode, state

    def managers(self) -> Iterator[tuple[Mode, ClientQuotaManager]]:
        """Yield every manager that there is by now, with the mode of its clients."""
        for mode, managers in self._managers.items():
            for manager in managers.values():
                yield mode, manager

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes of which there are managers by now."""
        return tuple(self._managers)

    def client(self, user: str, client_id: str) -> ClientLimits:
        """The handles of a user's client-id."""
        client = self._clients.get((user, client_id))
        if client is None:
            client = self._new_client(user, client_id)
            if self._keeps_clients and len(user) + len(client_id) <= MAX_CLIENT_NAME:
                if len(self._clients) >= MAX_CLIENTS:
                    self._clients.clear()  # those in use stay right
                self._clients[user, client_id] = client
        return client

    def update(self, quota_type: QuotaType, entity: Entity, limit: float | None, *, static: bool) -> None:
        """Set the limit of an entity from now on (None: it is gone); the history of its bucket stays."""
        update_limit(self._limits, quota_type, entity, limit, static=static)
        self.limits_changed((quota_type,))

    def limits_changed(self, quota_types: Collection[QuotaType]) -> None:
        """Take note that limits of these types changed.

        Handles follow changed limits by themselves. Only whether a client's requests are counted is in `ClientLimits`.
        """
        self.limits_mutations = self._limits[QuotaType.CONTROLLER_MUTATION].count > 0
        self.times_requests = self._limits[QuotaType.REQUEST].count > 0
        self._keeps_clients = any(limits.count for limits in self._limits.values())
        if any(quota_type in _TIMED for quota_type in quota_types):
            self.counts_requests = any(self._limits[quota_type].count for quota_type in _TIMED)
            self._new_version()

    def replace_book(self, book: PolicyTable) -> None:
        """Let the terms of this book hold from now on."""
        self._book = book
        self._new_version()

    def expire_idle(self, now_ms: int) -> None:
        """Forget the pool's buckets without a record for an hour, as a broker does, and all handles kept by name."""
        for _ in self._pool.expire_idle(now_ms):
            pass
        self.drop_handles()

    def drop_handles(self) -> None:
        """Drop the handles that are kept by name; those in use elsewhere go on working."""
        self._clients.clear()
        for managers in self._managers.values():
            for manager in managers.values():
                manager.drop_handles()

    def _new_version(self) -> None:
        self.version += 1
        self._clients.clear()

    def _new_client(self, user: str, client_id: str) -> ClientLimits:
        terms = self._book.terms_of(user, client_id)
        home = self if self._cluster is None or terms.scope is Scope.BROKER else self._cluster
        managers = self._unconfigured if terms.exempt else home._managers_of(terms.mode)  # noqa: SLF001 - its like
        return ClientLimits(
            {quota_type: Limiter(manager, user, client_id) for quota_type, manager in managers.items()},
            terms,
            is_internal=user in self._book.internal_principals,
            version=self.version,
            counts_exempt=self.times_requests,
        )

    def _managers_of(self, mode: Mode) -> dict[QuotaType, ClientQuotaManager]:
        """The managers for a mode, made at its first mention."""
        managers = self._managers.get(mode)
        if managers is None:
            managers = self._managers[mode] = self._made(mode, self._limits)
        return managers

    def _made(self, mode: Mode, limits: Limits) -> dict[QuotaType, ClientQuotaManager]:
        algorithm = RateAlgorithm.SMOOTH if mode is Mode.SMOOTH else RateAlgorithm.WINDOW
        return {
            quota_type: ClientQuotaManager(
                quota_type,
                self._mutation_window if quota_type is QuotaType.CONTROLLER_MUTATION else self._window,
                algorithm,
                mutations=self._mutations,
                limits=limits[quota_type],
                pool=self._pool,
            )
            for quota_type in ENFORCED
        }
