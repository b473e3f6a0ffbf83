"""The quotas of one upstream broker: quotas hold per broker, so each broker has buckets of its own.

Clients of different modes draw on different buckets, and clients whose scope is the cluster on those of the cluster,
which is one more `BrokerQuotas` that all brokers share.
Invariants: all connections to one broker share one `BrokerQuotas`, and so its buckets, whichever listener they came by;
every manager has every limit; `version` differs after each change of a limit or of terms.
"""

from collections.abc import Iterator
from typing import Final

from kafka_quotas.core.entity import Entity
from kafka_quotas.core.mutation_bucket import MutationAlgorithm
from kafka_quotas.core.quota_config import QuotaWindow
from kafka_quotas.core.quota_manager import Algorithm, BucketState, ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.batch_order import BatchOrder
from kafka_quotas.enforcement.client import Client
from kafka_quotas.enforcement.terms import Mode, Scope, TermsBook

MAX_CLIENTS: Final = 10_000
"""How many clients' handles are kept to be found again, so that nobody can make them grow without end."""
ENFORCED: Final = tuple(QuotaType)
"""The quota types that the daemon enforces."""


class BrokerQuotas:
    """The quota managers of one broker; `cluster` has those of all brokers together."""

    def __init__(
        self,
        window: QuotaWindow,
        *,
        mutation_window: QuotaWindow | None = None,
        mutations: MutationAlgorithm = MutationAlgorithm.TOKEN_BUCKET,
        book: TermsBook | None = None,
        cluster: "BrokerQuotas | None" = None,
    ) -> None:
        self._window = window
        self._mutation_window = mutation_window or window
        self._mutations = mutations
        self._book = book or TermsBook()
        self._cluster = cluster
        self._limits: dict[tuple[QuotaType, Entity, bool], float] = {}
        self._managers: dict[Mode, dict[QuotaType, ClientQuotaManager]] = {}
        self._unconfigured = self._made(Mode.KAFKA)
        self._clients: dict[tuple[str, str], Client] = {}
        self.order = BatchOrder()
        """The numbered batches that were refused, so that those behind them are."""
        self.version = 0
        """Differs after every change that may give a client other limits or terms."""
        self.counts_requests = False
        """Whether any client may have a limit on requests or their time."""
        self.times_requests = False
        """Whether any client may have a limit on the time of requests."""
        self.limits_mutations = False
        """Whether any client may have a limit on creating, growing and deleting topics."""

    def manager(self, quota_type: QuotaType, mode: Mode = Mode.KAFKA) -> ClientQuotaManager:
        """The manager of one of the `ENFORCED` types, for clients of a mode."""
        return self._managers_of(mode)[quota_type]

    def buckets(self, quota_type: QuotaType, now_ms: int) -> Iterator[tuple[Mode, BucketState]]:
        """Every bucket of a type with the mode of its clients; asking changes none."""
        for mode, managers in self._managers.items():
            for state in managers[quota_type].buckets(now_ms):
                yield mode, state

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes of which there are managers by now."""
        return tuple(self._managers)

    def client(self, user: str, client_id: str) -> Client:
        """The handles of a user's client-id."""
        client = self._clients.get((user, client_id))
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                self._clients.clear()  # those in use stay right
            client = self._clients[user, client_id] = self._new_client(user, client_id)
        return client

    def update(self, quota_type: QuotaType, entity: Entity, limit: float | None, *, static: bool) -> None:
        """Nothing; the limit of an entity holds from now on (None: it is gone), the history of its bucket stays."""
        if limit is None:
            self._limits.pop((quota_type, entity, static), None)
        else:
            self._limits[quota_type, entity, static] = limit
        for managers in self._managers.values():
            _update(managers[quota_type], entity, limit, static=static)
        self._changed()

    def replace_book(self, book: TermsBook) -> None:
        """Nothing; the terms of this book hold from now on."""
        self._book = book
        self._changed()

    def expire_idle(self, now_ms: int) -> None:
        """Nothing; buckets without a record for an hour are forgotten, as a broker does."""
        self._clients.clear()
        for managers in self._managers.values():
            for manager in managers.values():
                manager.expire_idle(now_ms)

    def _changed(self) -> None:
        self.version += 1
        self._clients.clear()
        timed = (QuotaType.REQUEST, QuotaType.REQUEST_RATE)
        self.counts_requests = any(quota_type in timed for quota_type, _, _ in self._limits)
        self.times_requests = any(kind is QuotaType.REQUEST for kind, _, _ in self._limits)
        self.limits_mutations = any(kind is QuotaType.CONTROLLER_MUTATION for kind, _, _ in self._limits)

    def _new_client(self, user: str, client_id: str) -> Client:
        terms = self._book.terms_of(user, client_id)
        home = self if self._cluster is None or terms.scope is Scope.BROKER else self._cluster
        managers = self._unconfigured if terms.exempt else home._managers_of(terms.mode)  # noqa: SLF001 - its like
        return Client(
            {quota_type: manager.limiter(user, client_id) for quota_type, manager in managers.items()},
            terms,
            is_internal=user in self._book.internal_principals,
            version=self.version,
            counts_exempt=self.times_requests,
        )

    def _managers_of(self, mode: Mode) -> dict[QuotaType, ClientQuotaManager]:
        """The managers for a mode, made with all limits at its first mention."""
        managers = self._managers.get(mode)
        if managers is None:
            managers = self._managers[mode] = self._made(mode)
            for (quota_type, entity, static), limit in self._limits.items():
                _update(managers[quota_type], entity, limit, static=static)
        return managers

    def _made(self, mode: Mode) -> dict[QuotaType, ClientQuotaManager]:
        algorithm = Algorithm.SMOOTH if mode is Mode.SMOOTH else Algorithm.WINDOW
        return {
            quota_type: ClientQuotaManager(
                quota_type,
                self._mutation_window if quota_type is QuotaType.CONTROLLER_MUTATION else self._window,
                algorithm,
                mutations=self._mutations,
            )
            for quota_type in ENFORCED
        }


def _update(manager: ClientQuotaManager, entity: Entity, limit: float | None, *, static: bool) -> None:
    if static:
        manager.update_static_quota(entity, limit)
    else:
        manager.update_quota(entity, limit)
