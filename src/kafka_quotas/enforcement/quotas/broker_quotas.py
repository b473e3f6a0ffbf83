"""The quotas of one upstream broker: quotas hold per broker, so each broker has buckets of its own.

Clients of different modes draw on different buckets. Clients whose scope is the cluster draw on those of one more
`BrokerQuotas`, which all brokers share. `ClientLimits` has the limiters and the policy of one user and client-id at one
broker, for the hot path.

Invariants: all connections to one broker share one `BrokerQuotas`, and so its buckets, on any listener; the managers of
one type share one `QuotaResolver`, for all modes and brokers, so a limit is set once; `version` changes with each
change after which some client needs a new `ClientLimits`.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.groups.membership import UNKNOWN_PEER, Membership, Origin, Peer
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, Limiter, QuotaType, RateAlgorithm
from kafka_quotas.core.resolution.quota_resolver import QuotaResolver
from kafka_quotas.enforcement.config.client_policy import (
    ClientPolicy,
    FetchOverQuota,
    Mode,
    OnViolation,
    Scope,
)
from kafka_quotas.enforcement.quotas.producer_sequences import ProducerSequences

if TYPE_CHECKING:
    from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry


class ClientLimits:
    """The limiters and the policy of one client.

    It is valid while `BrokerQuotas.version` equals `version`. The limiters follow every change of limits by themselves.
    """

    def __init__(
        self,
        limiters: Mapping[QuotaType, Limiter],
        policy: ClientPolicy,
        *,
        is_internal: bool,
        version: int,
        counts_exempt: bool = False,
    ) -> None:
        self.limiters = limiters
        self.produce = limiters[QuotaType.PRODUCE]
        self.fetch = limiters[QuotaType.FETCH]
        self.request_time = limiters[QuotaType.REQUEST]
        self.request_rate = limiters[QuotaType.REQUEST_RATE]
        self.mutation = limiters[QuotaType.CONTROLLER_MUTATION]
        self.user = self.produce.user
        self.client_id = self.produce.client_id
        self.policy = policy
        self.is_internal = is_internal
        self.is_shadow = policy.mode is Mode.SHADOW
        self.empties_fetches = policy.fetch_over_quota is FetchOverQuota.KAFKA and not self.is_shadow
        """Whether a fetch over the quota gets an empty response, as from a broker."""
        self.refuses = policy.on_violation is not OnViolation.DELAY and not self.is_shadow
        """Whether requests get an error while the client is over a byte rate."""
        self.refuses_at_once = policy.on_violation is OnViolation.ERROR and not self.is_shadow
        """Whether it gets an error without any delay before."""
        self.holds_fetches = not self.is_shadow and (not self.empties_fetches or self.refuses_at_once)
        """Whether a fetch waits before it passes, unless its bucket has room for it."""
        self.max_throttle_ms = policy.max_throttle_ms
        self.counts_requests = self.request_time.bound is not None or self.request_rate.bound is not None
        """Whether the daemon counts or times each of its requests, which most clients don't need."""
        self.counts_exempt = counts_exempt
        """Whether the daemon counts the time of its exempt requests: while any client has a limit on time."""
        self.version = version


MAX_CLIENTS: Final = 10_000
"""Most `ClientLimits` that are cached, because clients choose their client-ids and could fill the memory."""
MAX_CLIENT_NAME: Final = 256
"""Longest user and client-id together of a cached `ClientLimits`, for the same reason."""
ENFORCED: Final = tuple(QuotaType)
NO_GROUPS: Final = Membership(GroupTree())
_TIMED: Final = (QuotaType.REQUEST, QuotaType.REQUEST_RATE)

Limits: TypeAlias = Mapping[QuotaType, QuotaResolver]
"""Quota type -> the limits in force, which all brokers and modes share."""


def new_limits() -> Limits:
    """Return an empty set of limits for every type that the daemon enforces."""
    return {quota_type: QuotaResolver() for quota_type in ENFORCED}


class BrokerQuotas:
    """The quota managers of one broker, or those for the whole cluster."""

    def __init__(self, registry: "QuotaRegistry", *, cluster: "BrokerQuotas | None" = None) -> None:
        self.registry = registry
        """The limits, policies and groups in force."""
        self._cluster = cluster
        self._managers: dict[Mode, dict[QuotaType, ClientQuotaManager]] = {}
        self._unconfigured = self._made(Mode.KAFKA, new_limits())
        self._clients: dict[tuple[str, str, Origin], ClientLimits] = {}
        self._keeps_clients = False
        self.sequences = ProducerSequences()
        """The refused numbered batches, after which later ones have to be refused."""
        self.version = 0
        """A number that changes whenever a client may get other limits or another policy."""
        self.counts_requests = False
        """Whether any client may have a limit on the rate or time of requests."""
        self.times_requests = False
        """Whether any client may have a limit on the time of requests."""
        self.limits_mutations = False
        """Whether any client may have a limit on creating, growing and deleting topics."""
        self.limits_changed(ENFORCED)

    def manager(self, quota_type: QuotaType, mode: Mode = Mode.KAFKA) -> ClientQuotaManager:
        """Return the manager of one of the `ENFORCED` types for clients of a mode."""
        return self._managers_of(mode)[quota_type]

    def managers(self) -> Iterator[tuple[Mode, ClientQuotaManager]]:
        """Yield every manager made so far, with the mode of its clients."""
        for mode, managers in self._managers.items():
            for manager in managers.values():
                yield mode, manager

    def client(self, user: str, client_id: str, peer: Peer = UNKNOWN_PEER) -> ClientLimits:
        """Return the limits of a user's client-id on a connection."""
        origin = self.registry.groups.origin(peer)
        client = self._clients.get((user, client_id, origin))
        if client is None:
            client = self._new_client(user, client_id, peer)
            if self._keeps_clients and len(user) + len(client_id) <= MAX_CLIENT_NAME:
                if len(self._clients) >= MAX_CLIENTS:
                    self._clients.clear()  # those in use stay valid
                self._clients[user, client_id, origin] = client
        return client

    def limits_changed(self, quota_types: Collection[QuotaType]) -> None:
        """Update the flags that depend on the limits of these types."""
        # A `Limiter` follows changed limits by itself. `ClientLimits` only keeps whether to count requests, so
        # only limits on requests change `version`.
        limits = self.registry.limits
        self.limits_mutations = limits[QuotaType.CONTROLLER_MUTATION].count > 0
        self.times_requests = limits[QuotaType.REQUEST].count > 0
        self._keeps_clients = any(each.count for each in limits.values())
        if any(quota_type in _TIMED for quota_type in quota_types):
            self.counts_requests = any(limits[quota_type].count for quota_type in _TIMED)
            self._new_version()
        if QuotaType.FETCH in quota_types:
            self._call_waiting()

    def policies_changed(self) -> None:
        """Give every client its policy and groups anew."""
        self._new_version()
        self._call_waiting()

    def _call_waiting(self) -> None:
        for managers in self._managers.values():
            managers[QuotaType.FETCH].call_waiting()

    def drop_clients(self) -> None:
        """Drop the cached limits, while those in use elsewhere stay valid."""
        self._clients.clear()

    def _new_version(self) -> None:
        self.version += 1
        self._clients.clear()

    def _new_client(self, user: str, client_id: str, peer: Peer) -> ClientLimits:
        policies, groups = self.registry.policies, self.registry.groups
        policy = policies.policy_of(user, client_id)
        managers = self._unconfigured if policy.exempt else self._home(policy.scope, policy.mode)
        group = None if policy.exempt else groups.group_of(user, client_id, peer)
        around = managers if group is None else self._around(policy)
        return ClientLimits(
            {
                quota_type: Limiter(
                    manager,
                    user,
                    client_id,
                    [bound.bucket for bound in groups.tree.bounds_around(group, quota_type.key.name)],
                    around[quota_type],
                )
                for quota_type, manager in managers.items()
            },
            policy,
            is_internal=user in policies.internal_principals,
            version=self.version,
            counts_exempt=self.times_requests,
        )

    def _around(self, policy: ClientPolicy) -> dict[QuotaType, ClientQuotaManager]:
        """Return the managers of the buckets of a client's groups, which it shares with the others in them.

        They are smooth: a window forgets debts, so it makes many clients wait their turns only while it is exceeded by
        a request of each of them. What clients in shadow mode do is kept apart, as it must not delay others.
        """
        return self._home(
            self.registry.policies.default.scope, Mode.SHADOW if policy.mode is Mode.SHADOW else Mode.SMOOTH
        )

    def _home(self, scope: Scope, mode: Mode) -> dict[QuotaType, ClientQuotaManager]:
        home = self if self._cluster is None or scope is Scope.BROKER else self._cluster
        return home._managers_of(mode)  # noqa: SLF001 - its like

    def _managers_of(self, mode: Mode) -> dict[QuotaType, ClientQuotaManager]:
        managers = self._managers.get(mode)
        if managers is None:
            managers = self._managers[mode] = self._made(mode, self.registry.limits)
        return managers

    def _made(self, mode: Mode, limits: Limits) -> dict[QuotaType, ClientQuotaManager]:
        registry = self.registry
        algorithm = RateAlgorithm.SMOOTH if mode is Mode.SMOOTH else RateAlgorithm.WINDOW
        return {
            quota_type: ClientQuotaManager(
                quota_type,
                registry.mutation_window if quota_type is QuotaType.CONTROLLER_MUTATION else registry.window,
                algorithm,
                limits=limits[quota_type],
                pool=registry.pool,
            )
            for quota_type in ENFORCED
        }
