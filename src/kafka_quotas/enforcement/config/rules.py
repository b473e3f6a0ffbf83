"""The rules of enforcement that hold for every client, whatever its quotas are.

The rules for requests that create, grow or delete topics under `controller_mutation_rate`.

The error for data over the thresholds of topics.
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
from kafka_quotas.wire.protocol.error_code import ErrorCode


class MutationMode(StrEnum):
    """The handling of topics over the quota."""

    AUTO = "auto"
    """Refused in versions whose clients know the error, else admitted and waited for, as a broker does."""
    STRICT = "strict"
    """Refused in every version."""
    PERMISSIVE = "permissive"
    """Admitted in every version, and waited for."""


class AutoCreate(StrEnum):
    """The handling of topics that a Metadata request would create by naming them."""

    COUNT = "count"
    """They count as if they were requested, and are waited for."""
    FORBID = "forbid"
    """They are not created."""
    PASS = "pass"  # noqa: S105 - no password
    """They are created and cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRules:
    """The rules for clients that have a quota on mutations.

    `auto_create: forbid` holds for all other clients as well.
    """

    mode: MutationMode = MutationMode.AUTO
    algorithm: MutationAlgorithm = MutationAlgorithm.TOKEN_BUCKET
    auto_create: AutoCreate = AutoCreate.COUNT

    def is_strict(self, api_key: int, api_version: int) -> bool:
        """Return whether topics over the quota are refused in a version of an API."""
        if self.mode is MutationMode.AUTO:
            strict_since = charges_of(api_key).strict_since
            return strict_since is not None and api_version >= strict_since
        return self.mode is MutationMode.STRICT


class ThresholdError(StrEnum):
    """The error that a producer gets for rejected data."""

    POLICY_VIOLATION = "policy-violation"
    """Clients give up, so the data is dropped."""
    THROTTLING_QUOTA_EXCEEDED = "throttling-quota-exceeded"
    """Clients that know it retry."""

    @property
    def code(self) -> int:
        """The error code in Kafka's protocol."""
        return ErrorCode[self.name]


ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's name for a client that did not authenticate."""
UNKNOWN_PRINCIPAL: Final = "UNKNOWN"
"""Name of a client that authenticated in a way the daemon can't read."""

MAX_IN_FLIGHT: Final = 1000
"""Default of `max.in.flight.requests.per.connection`: a broker works on one of them at a time, so more gain nothing."""
MAX_QUEUED_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""Default of `--queued-max-request-bytes`: twice the longest request, and some."""


class ThrottleStyle(StrEnum):
    """The means by which a client is made to wait."""

    MUTE = "mute"
    """The response goes out at once and the connection is muted after it (KIP-219, Kafka since 2.0)."""
    DELAY = "delay"
    """The response is held back (KIP-13, Kafka before 2.0)."""


class UnknownApi(StrEnum):
    """The handling of a request of an API that the daemon has no definition of."""

    PASS = "pass"  # noqa: S105 - no password
    """It passes untouched, and so does its response."""
    REFUSE = "refuse"
    """Its connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcementRules:
    """The rules by which the daemon enforces quotas.

    `max_throttle_ms`, `mode`, `scope`, `fetch_over_quota` and `on_violation` hold where a policy file has nothing else.
    """

    window: QuotaWindow = DEFAULT_WINDOW
    throttle_style: ThrottleStyle = ThrottleStyle.MUTE
    max_throttle_ms: int | None = None
    """Longest throttle time, None for Kafka's own."""
    mode: Mode = Mode.KAFKA
    scope: Scope = Scope.BROKER
    fetch_over_quota: FetchOverQuota = FetchOverQuota.DELIVER
    on_violation: OnViolation = OnViolation.DELAY
    mutation_window: QuotaWindow = DEFAULT_WINDOW
    mutations: MutationRules = field(default_factory=MutationRules)
    threshold_error: ThresholdError = ThresholdError.POLICY_VIOLATION
    max_request_bytes: int = MAX_REQUEST_BYTES
    principal: str | None = None
    """Principal of every client, None for the name from SASL or a certificate."""
    requires_authentication: bool = False
    """Whether only SASL passes before it has succeeded."""
    oauthbearer_claim: str = "sub"
    """Claim of a bearer's token that names the principal."""
    unknown_apis: UnknownApi = UnknownApi.PASS
    unknown_principal: str = UNKNOWN_PRINCIPAL
    """Principal of clients whose name can't be read."""
    internal_principals: frozenset[str] = frozenset()
    """Principals whose follower fetches are exempt, because any client can claim to be a follower."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Requests of a connection that may wait for their responses before it is left unread."""
    apis: ApiAccess = ALL_APIS
    """APIs that pass."""
    fleet_topic: str | None = None
    """The topic that no client may change, as it carries the reports of the fleet."""

    def serves(self, api_key: int) -> bool:
        """Return whether requests of an API pass."""
        return (self.unknown_apis is UnknownApi.PASS or api_key in API_TABLE) and self.apis.permits(api_key)

    @property
    def serves_all(self) -> bool:
        """Whether requests of every API pass."""
        return self.unknown_apis is UnknownApi.PASS and self.apis == ALL_APIS

    @property
    def policies(self) -> PolicyTable:
        """The policies of all clients without a policy file."""
        default = ClientPolicy(
            mode=self.mode,
            scope=self.scope,
            fetch_over_quota=self.fetch_over_quota,
            on_violation=self.on_violation,
            max_throttle_ms=self.max_throttle_ms,
        )
        return PolicyTable(default=default, internal_principals=self.internal_principals)
