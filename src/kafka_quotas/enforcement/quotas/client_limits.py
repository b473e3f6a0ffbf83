"""The limiters and the policy of one user and client-id at one broker, for the hot path."""

from collections.abc import Mapping

from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.config.client_policy import ClientPolicy, FetchOverQuota, Mode, OnViolation


class ClientLimits:
    """The limiters and the policy of one client.

    It is valid while `BrokerQuotas.version` equals `version`. The limiters follow every change of limits by themselves.
    """

    __slots__ = (
        "client_id",
        "counts_exempt",
        "counts_requests",
        "empties_fetches",
        "fetch",
        "holds_fetches",
        "is_internal",
        "is_shadow",
        "max_throttle_ms",
        "mutation",
        "policy",
        "produce",
        "refuses",
        "refuses_at_once",
        "request_rate",
        "request_time",
        "user",
        "version",
    )

    def __init__(
        self,
        limiters: Mapping[QuotaType, Limiter],
        policy: ClientPolicy,
        *,
        is_internal: bool,
        version: int,
        counts_exempt: bool = False,
    ) -> None:
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
