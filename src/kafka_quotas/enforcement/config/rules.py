"""The rules of enforcement that hold for every client, whatever its quotas are.

How requests that create, grow or delete topics are held to `controller_mutation_rate`.

How data over the thresholds of topics is rejected.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.mutation_bucket import MutationAlgorithm
from kafka_quotas.core.quotas.quota_charges import charges_of
from kafka_quotas.enforcement.config.api_access import ALL_APIS, ApiAccess
from kafka_quotas.enforcement.config.client_policy import (
    ClientPolicy,
    FetchOverQuota,
    Mode,
    OnViolation,
    PolicyTable,
    Scope,
)
from kafka_quotas.wire.codec.frame import MAX_REQUEST_BYTES
from kafka_quotas.wire.protocol.api_table import API_TABLE


class MutationMode(StrEnum):
    """What becomes of topics over the quota."""

    AUTO = "auto"
    """Refused in versions whose clients know the error, else admitted and waited for, as a broker does."""
    STRICT = "strict"
    """Refused in every version."""
    PERMISSIVE = "permissive"
    """Admitted in every version, and waited for."""


class AutoCreate(StrEnum):
    """What becomes of topics that would be made because a Metadata request names them."""

    COUNT = "count"
    """They count as if they had been asked for, and are waited for."""
    FORBID = "forbid"
    """They are not made."""
    PASS = "pass"  # noqa: S105 - no password
    """They are made and cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRules:
    """The rules for every client that has such a quota; `auto_create: forbid` holds for the others as well."""

    mode: MutationMode = MutationMode.AUTO
    algorithm: MutationAlgorithm = MutationAlgorithm.TOKEN_BUCKET
    auto_create: AutoCreate = AutoCreate.COUNT

    def is_strict(self, api_key: int, api_version: int) -> bool:
        """Whether topics over the quota are refused in a version."""
        if self.mode is MutationMode.AUTO:
            strict_since = charges_of(api_key).strict_since
            return strict_since is not None and api_version >= strict_since
        return self.mode is MutationMode.STRICT


class ThresholdError(StrEnum):
    """The error that a producer gets for rejected data."""

    POLICY_VIOLATION = "policy-violation"
    """Clients give up, so the data is dropped."""
    THROTTLING_QUOTA_EXCEEDED = "throttling-quota-exceeded"
    """Clients that know it try again."""

    @property
    def code(self) -> int:
        """The error code of the protocol."""
        return _CODES[self]


_CODES: Final = {ThresholdError.POLICY_VIOLATION: 44, ThresholdError.THROTTLING_QUOTA_EXCEEDED: 89}


ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's name for a client that did not authenticate."""
UNKNOWN_PRINCIPAL: Final = "UNKNOWN"
"""What a client is called that authenticated in a way we can't read."""

MAX_IN_FLIGHT: Final = 1000
"""Default of `max.in.flight.requests.per.connection`: a broker works on one of them at a time, so more gain nothing."""
MAX_QUEUED_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""Default of `--queued-max-request-bytes`: twice the longest request, and some."""


class ThrottleStyle(StrEnum):
    """How a client is made to wait."""

    MUTE = "mute"
    """The response goes out at once and the connection is muted after it (KIP-219, Kafka since 2.0)."""
    DELAY = "delay"
    """The response is held back (KIP-13, Kafka before 2.0)."""


class UnknownApi(StrEnum):
    """What becomes of a request of an API that the daemon has no definition of."""

    PASS = "pass"  # noqa: S105 - no password
    """It goes on untouched, and so does its response."""
    REFUSE = "refuse"
    """Its connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcementRules:
    """How quotas are enforced.

    `max_throttle_ms` cuts every throttle time, None leaves them as long as Kafka would make them; it, `mode`, `scope`,
    `fetch_over_quota` and `on_violation` are what holds where a policy file says nothing else. `principal` names
    every client of the daemon; None takes the name from SASL, `unknown_principal` where it can't be read, in a bearer's
    token the `oauthbearer_claim`. With `requires_authentication` nothing but SASL passes before it succeeded. Follower
    fetches are exempt for `internal_principals` only, for anyone can claim to be a follower. `max_in_flight` requests
    of a connection may wait for their responses before it is left unread. `apis` says which APIs pass.
    """

    window: QuotaWindow = DEFAULT_WINDOW
    throttle_style: ThrottleStyle = ThrottleStyle.MUTE
    max_throttle_ms: int | None = None
    mode: Mode = Mode.KAFKA
    scope: Scope = Scope.BROKER
    fetch_over_quota: FetchOverQuota = FetchOverQuota.DELIVER
    on_violation: OnViolation = OnViolation.DELAY
    mutation_window: QuotaWindow = DEFAULT_WINDOW
    mutations: MutationRules = field(default_factory=MutationRules)
    threshold_error: ThresholdError = ThresholdError.POLICY_VIOLATION
    max_request_bytes: int = MAX_REQUEST_BYTES
    principal: str | None = None
    requires_authentication: bool = False
    oauthbearer_claim: str = "sub"
    unknown_apis: UnknownApi = UnknownApi.PASS
    unknown_principal: str = UNKNOWN_PRINCIPAL
    internal_principals: frozenset[str] = frozenset()
    max_in_flight: int = MAX_IN_FLIGHT
    apis: ApiAccess = ALL_APIS

    def serves(self, api_key: int) -> bool:
        """Return whether requests of an API pass."""
        is_known = self.unknown_apis is UnknownApi.PASS or api_key in API_TABLE
        return is_known and self.apis.permits(api_key)

    @property
    def serves_all(self) -> bool:
        """Whether requests of every API pass."""
        return self.unknown_apis is UnknownApi.PASS and self.apis == ALL_APIS

    @property
    def terms(self) -> ClientPolicy:
        """The terms of clients that no entity of a policy file has others for."""
        return ClientPolicy(
            mode=self.mode,
            scope=self.scope,
            fetch_over_quota=self.fetch_over_quota,
            on_violation=self.on_violation,
            max_throttle_ms=self.max_throttle_ms,
        )

    @property
    def book(self) -> PolicyTable:
        """The terms of all clients where there is no policy file."""
        return PolicyTable(default=self.terms, internal_principals=self.internal_principals)
