"""The rules of enforcement that hold for every client, whatever its quotas are.

An API that clients of a listener may not use is left out of ApiVersions, so they know before they send a request; a
request of it all the same closes the connection, as a broker does for an API that its listener does not serve. The APIs
of the login and ApiVersions itself always pass.

**Source:** `ApiMessageType.ListenerType`, `SocketServer.Processor.processCompletedReceives` (4.x).
"""

import re
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.core.model.value_format import parse_bytes
from kafka_quotas.core.quotas.quota_charges import charges_of
from kafka_quotas.enforcement.config.client_policy import ENFORCEMENT, ClientPolicy, PolicyTable
from kafka_quotas.wire.codec.encoding import MAX_REQUEST_BYTES
from kafka_quotas.wire.protocol.api_table import API_TABLE, ErrorCode

IDENTITY: Final = partial(setting, "identity")
LIMITS: Final = partial(setting, "limits")
_SIZE: Final = re.compile(r"\+?[0-9.]+\s*(?:[kMGT]i?|Ki)?B?")
_AMOUNT: Final = r"\+?(?=[0-9.]*[1-9])(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"


def _parse_size(text: str) -> int:
    size = int(parse_bytes(text)) if _SIZE.fullmatch(text.strip()) else 0
    if size < 1:
        raise UsageError(f"not a size of at least 1 byte: {text!r}", hint="for example 100MiB")
    return size


def _size_text(size: int) -> str:
    unit = next((each for each in ("GiB", "MiB", "KiB") if size % _UNITS[each] == 0), "")
    return f"{size // _UNITS.get(unit, 1)}{unit}"


def _parse_name(text: str) -> str:
    if not text:
        raise UsageError("it is empty", hint="leave it out, or name one; is the shell variable behind it set?")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"not valid UTF-8: {text!a}", hint="check the encoding of the terminal") from None
    return text


_UNITS: Final = {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024}
SIZE: Final = TextForm(
    read=_parse_size, pattern=rf"^\s*{_AMOUNT}\s*(?:[kMGT]i?|Ki)?B?\s*$", integers=(1, None), write=_size_text
)
NAME: Final = TextForm(read=_parse_name, pattern=r"[\s\S]", integers=(0, None))


class MutationMode(StrEnum):
    """The handling of topics over the quota."""

    AUTO = "auto"
    STRICT = "strict"
    PERMISSIVE = "permissive"


class AutoCreate(StrEnum):
    """The handling of topics that a Metadata request would create by naming them."""

    COUNT = "count"
    FORBID = "forbid"
    PASS = "pass"  # noqa: S105 - no password


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

MAX_QUEUED_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""Default of `--queued-max-request-bytes`: twice the longest request, and some."""
MAX_IN_FLIGHT: Final = 1000
"""Default of `max.in.flight.requests.per.connection`: a broker works on one of them at a time, so more gain nothing."""


class ThrottleStyle(StrEnum):
    """The means by which a client is made to wait."""

    MUTE = "mute"
    DELAY = "delay"


class UnknownApi(StrEnum):
    """The handling of a request of an API that the daemon has no definition of."""

    PASS = "pass"  # noqa: S105 - no password
    REFUSE = "refuse"


ALWAYS: Final = frozenset(map(int, (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)))
_KEYS: Final = {api.name.lower(): key for key, api in API_TABLE.items()}


def parse_apis(text: str) -> frozenset[int]:
    """Return the keys of APIs by their names in Kafka's protocol, or their keys, separated by commas."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("it names no API", hint="for example Produce,Metadata")
    keys = {word: int(word) if word.isdecimal() else _KEYS.get(word.lower()) for word in words}
    for word, key in keys.items():
        if key is None or key > 0x7FFF:
            raise UsageError(f"there is no API {word!r}", hint="for example CreateTopics, or its key 19")
    return frozenset(key for key in keys.values() if key is not None)


def parse_denied_apis(text: str) -> frozenset[int]:
    """Return the keys of APIs, none of which a login needs."""
    denied = parse_apis(text)
    needed = sorted(API_TABLE[key].name for key in denied & ALWAYS)
    if needed:
        raise UsageError(f"clients can't do without {', '.join(needed)}", hint="leave them out")
    return denied


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcementRules(ClientPolicy):
    """The rules by which the daemon enforces quotas, and the policy of clients that no policy file names."""

    window: QuotaWindow = DEFAULT_WINDOW
    mutation_window: QuotaWindow = DEFAULT_WINDOW
    throttle_style: ThrottleStyle = ENFORCEMENT(
        "--throttle-style",
        "mute: answer at once, then don't read (Kafka since 2.0). delay: hold the response back (before).",
        default=ThrottleStyle.MUTE,
    )
    mutations: MutationMode = ENFORCEMENT(
        "--mutations",
        "What happens to topics over controller_mutation_rate. strict: error 89. permissive: admitted, and the "
        "client is throttled. auto: strict in versions whose clients know the error, as a broker does.",
        default=MutationMode.AUTO,
    )
    auto_create: AutoCreate = ENFORCEMENT(
        "--auto-create",
        "What happens to topics that would be created because a Metadata request names them. count: charged to "
        "controller_mutation_rate. forbid: not created. pass: created without a charge.",
        default=AutoCreate.COUNT,
    )
    """`FORBID` holds for clients without a quota on mutations as well."""
    threshold_error: ThresholdError = ENFORCEMENT(
        "--threshold-error",
        "The error for data of topics over a threshold: 44, on which clients give up, or 89, which some retry.",
        default=ThresholdError.POLICY_VIOLATION,
    )
    max_request_bytes: int = LIMITS(
        "--max-request-bytes SIZE",
        "A longer request closes its connection, as socket.request.max.bytes does at a broker.",
        SIZE,
        default=MAX_REQUEST_BYTES,
    )
    principal: str | None = IDENTITY(
        "--principal NAME",
        "Count every client as this user. Default: the name from SASL, ANONYMOUS without.",
        NAME,
        default=None,
    )
    requires_authentication: bool = False
    """Whether only SASL passes before it has succeeded."""
    oauthbearer_claim: str = "sub"
    unknown_apis: UnknownApi = LIMITS(
        "--unknown-apis",
        "What happens to requests of APIs that the daemon doesn't know: pass (untouched) or refuse (close).",
        default=UnknownApi.PASS,
    )
    unknown_principal: str = IDENTITY(
        "--unknown-principal NAME",
        "The user of clients that authenticate in a way that can't be read (GSSAPI, delegation tokens).",
        NAME,
        default=UNKNOWN_PRINCIPAL,
    )
    internal_principals: frozenset[str] = IDENTITY(
        "--internal-principal NAME",
        "A user whose fetches as a replica are exempt; may be repeated. No other user's fetches are.",
        NAME,
        default=frozenset(),
    )
    """Any client can claim to be a follower, so their names decide."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Requests of a connection that may wait for their responses before it is left unread."""
    allowed_apis: frozenset[int] | None = None
    """Keys of the APIs that pass, None for all."""
    denied_apis: frozenset[int] = frozenset()
    """Keys of the APIs that do not pass, allowed or not."""
    fleet_topic: str | None = None
    """The topic that no client may change, as it carries the reports of the fleet."""

    def serves(self, api_key: int) -> bool:
        """Return whether requests of an API pass."""
        if api_key in ALWAYS:
            return True
        is_known = self.unknown_apis is UnknownApi.PASS or api_key in API_TABLE
        is_allowed = self.allowed_apis is None or api_key in self.allowed_apis
        return is_known and is_allowed and api_key not in self.denied_apis

    def refuses_mutations(self, api_key: int, api_version: int) -> bool:
        """Return whether topics over the quota are refused in a version of an API."""
        if self.mutations is MutationMode.AUTO:
            strict_since = charges_of(api_key).strict_since
            return strict_since is not None and api_version >= strict_since
        return self.mutations is MutationMode.STRICT

    @property
    def serves_all(self) -> bool:
        """Whether requests of every API pass."""
        return self.unknown_apis is UnknownApi.PASS and self.allowed_apis is None and not self.denied_apis

    @property
    def policies(self) -> PolicyTable:
        """The policies of all clients without a policy file."""
        default = ClientPolicy(**{each.name: getattr(self, each.name) for each in fields(ClientPolicy)})
        return PolicyTable(default=default, internal_principals=self.internal_principals)
