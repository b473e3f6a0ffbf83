"""One user with one client-id at one broker, as the hot path knows it: its limiters, and their terms."""

from collections.abc import Mapping

from kafka_quotas.core.quotas.quota_manager import Limiter, QuotaType
from kafka_quotas.enforcement.config.client_policy import ClientPolicy, FetchOverQuota, Mode, OnViolation


class ClientLimits:
    """The handles of a client; right until `BrokerQuotas.version` differs from `version`.

    Limiters follow every change of limits by themselves. With `refuses` what the client sends while it is over a byte
    rate is refused with an error, with `refuses_at_once` nothing is delayed before that. `counts_requests` says that
    each of its requests has to be counted or timed, which those of most clients have not, `counts_exempt` that the time
    of those which no quota limits has to be: while any client has a limit on it.
    """

    __slots__ = (
        "client_id",
        "counts_exempt",
        "counts_requests",
        "empties_fetches",
        "fetch",
        "is_internal",
        "is_shadow",
        "max_throttle_ms",
        "mutation",
        "produce",
        "refuses",
        "refuses_at_once",
        "request_rate",
        "request_time",
        "terms",
        "user",
        "version",
    )

    def __init__(
        self,
        limiters: Mapping[QuotaType, Limiter],
        terms: ClientPolicy,
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
        self.terms = terms
        self.is_internal = is_internal
        self.is_shadow = terms.mode is Mode.SHADOW
        self.empties_fetches = terms.fetch_over_quota is FetchOverQuota.KAFKA and not self.is_shadow
        self.refuses = terms.on_violation is not OnViolation.DELAY and not self.is_shadow
        self.refuses_at_once = terms.on_violation is OnViolation.ERROR and not self.is_shadow
        self.max_throttle_ms = terms.max_throttle_ms
        self.counts_requests = self.request_time.bound is not None or self.request_rate.bound is not None
        self.counts_exempt = counts_exempt
        self.version = version
