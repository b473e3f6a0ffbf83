"""Who a client is: read from the SASL exchange as it passes, believed once the broker has said yes.

Invariants: nothing is checked here and nothing is answered, the broker does both; a name never holds before the
broker's success. What can't be read (GSSAPI, tokens of other mechanisms, SCRAM with a delegation token, which does not
name the token's owner) becomes the configured fallback and is counted, never silently ANONYMOUS. Of mechanisms that
can't be read only the client knows which answer was the last: its first other request says so. Re-authentication is
the same exchange once more. Where TLS ends at the daemon the name in the client's certificate holds until SASL names
another. Before it is known who a client is, its requests are few and small.
**Source:** KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator`, `DefaultKafkaPrincipalBuilder` (4.x).
"""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.counters import Counters
from kafka_quotas.enforcement.exchange import API_VERSIONS, RAW_TOKEN, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_quotas.enforcement.notice import Notice, Notify, Severity
from kafka_quotas.enforcement.rules import ANONYMOUS, Rules
from kafka_quotas.wire.frame import MAX_UNAUTHENTICATED_BYTES
from kafka_quotas.wire.request_header import RequestHeader, parse_request_header
from kafka_quotas.wire.sasl import (
    RAW_TOKENS_UNTIL,
    authenticate_result,
    authenticate_token,
    handshake_error_code,
    handshake_mechanism,
    raw_token,
)
from kafka_quotas.wire.sasl_identity import OAUTHBEARER, PLAIN, SCRAM, oauthbearer_subject, plain_user, scram_identity

_SCRAM_SUCCESS: Final = b"v="
_READABLE: Final = (PLAIN, *SCRAM, OAUTHBEARER)
_AUTHENTICATION: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
MAX_UNAUTHENTICATED_REQUESTS: Final = 32
"""Most requests and tokens of one who has not authenticated: Kerberos takes some 8, all others fewer."""
_REQUEST_START: Final = 0
"""First byte of every request: the upper half of an API key. No opaque mechanism's token starts like that."""


class Identity:
    """The principal of one connection."""

    def __init__(self, *, rules: Rules, counters: Counters, notify: Notify) -> None:
        self._fixed = rules.principal
        self._unknown = rules.unknown_principal
        self._counters = counters
        self._notify = notify
        self._mechanism = ""
        self._claimed: str | None = None
        self._token_sent = False
        self._claim = rules.oauthbearer_claim
        self._requires_authentication = rules.requires_authentication
        self._is_authenticating = False
        self._opaque_answered = False
        self._request_count = 0
        self.is_settled = False
        """Whether it is known who the client is, so that requests need not be looked at for that any more."""
        self.principal = rules.principal or ANONYMOUS
        """The name that quotas are looked up by."""
        self.expects_tokens = False
        """Whether the client's next frame is a bare token, without a header."""
        self.is_authenticated = False
        """Whether the broker has said yes at least once."""

    @property
    def reads_tokens(self) -> bool:
        """Whether the mechanism is one whose tokens can be read; those of others only pass."""
        return self._mechanism in _READABLE

    def certified(self, user: str | None) -> None:
        """Nothing; the client showed a certificate that stands for this user (None: no rule says for which)."""
        if self._fixed is None:
            self.principal = self._or_unknown(user, "client certificate")

    def admit(self, header: RequestHeader) -> None:
        """Nothing; a client that has not authenticated may send this request. To be called until `is_settled`.

        Raises `ProtocolError` where it may not: there were too many, it is too long, or it is not for the
        unauthenticated.
        """
        if header.api_key in _AUTHENTICATION:
            self._count_request()
            if header.frame_length > MAX_UNAUTHENTICATED_BYTES:
                raise ProtocolError(f"an authentication request announces {header.frame_length} bytes")
        elif self._opaque_answered:
            self._succeed()
        elif self._requires_authentication or self._is_authenticating:
            raise ProtocolError(
                f"a request of API {header.api_key} came before authentication",
                hint="the listener is for clients that authenticate by SASL",
            )
        else:
            self.is_settled = True

    def _count_request(self) -> None:
        self._request_count += 1
        if self._request_count > MAX_UNAUTHENTICATED_REQUESTS:
            raise ProtocolError(f"more than {MAX_UNAUTHENTICATED_REQUESTS} requests came before authentication")

    def expect_opaque_tokens(self) -> None:
        """Nothing; the client started with a bare token, as Kerberos clients of Kafka 0.9 do."""
        self._mechanism = "GSSAPI"
        self.expects_tokens = self._is_authenticating = True

    def ends_tokens(self, first_byte: int | None) -> bool:
        """Whether a frame that starts with this byte (None: it is empty) is the first request behind opaque tokens."""
        if not self.is_settled:
            self._count_request()
        if self.reads_tokens or first_byte != _REQUEST_START:
            return False
        self.expects_tokens = False
        self._succeed()
        return True

    def asked(self, api_key: int, api_version: int, frame: bytearray) -> None:
        """Nothing; a whole request (or bare token) of the exchange is taken note of.

        Raises `ProtocolError` where a SaslHandshake or SaslAuthenticate request ends too early.
        """
        del api_version
        if api_key == RAW_TOKEN:
            self._take_token(raw_token(frame))
            return
        header = parse_request_header(frame)
        assert header is not None, "the request was gathered whole"
        if api_key == SASL_HANDSHAKE:
            self._mechanism = handshake_mechanism(frame, header)
            self._token_sent = False
            self._claimed = None
        else:
            self._take_token(authenticate_token(frame, header))

    def answered(self, api_key: int, api_version: int, frame: bytearray) -> None:
        """Nothing; the broker's whole answer is taken note of.

        Raises `ProtocolError` where a SaslHandshake or SaslAuthenticate response ends too early.
        """
        if api_key == SASL_HANDSHAKE:
            accepted = handshake_error_code(frame, api_version) == 0
            self._is_authenticating = accepted
            self.is_settled = self.is_authenticated or not accepted
            self.expects_tokens = accepted and api_version <= RAW_TOKENS_UNTIL
        elif api_key == RAW_TOKEN:
            self._take_answer(raw_token(frame))
        else:
            result = authenticate_result(frame, api_version)
            if result.error_code == 0:
                self._take_answer(result.token)

    def _take_token(self, token: bytes) -> None:
        """Nothing; the first token of an exchange tells who the client says it is."""
        if self._token_sent or not self.reads_tokens:
            return
        self._token_sent = True
        try:
            self._claimed = _claimed_name(self._mechanism, token, self._claim)
        except ProtocolError:
            self._claimed = None  # the broker gives the verdict; should it be content, the name stays unknown

    def _take_answer(self, token: bytes) -> None:
        """Nothing; a success of the broker makes the claimed name the principal."""
        if self._mechanism in SCRAM and not token.startswith(_SCRAM_SUCCESS):
            return
        if self._mechanism == OAUTHBEARER and token:
            return  # what is wrong with the bearer's token: the broker refuses when the client has acknowledged it
        self.expects_tokens = False
        if self.reads_tokens:
            self._succeed()
        else:
            self._opaque_answered = True

    def _succeed(self) -> None:
        self._counters.authentications += 1
        self.is_authenticated = True
        self.is_settled = True
        self._is_authenticating = self._opaque_answered = False
        if self._fixed is None:
            self.principal = self._or_unknown(self._claimed, self._mechanism)

    def _or_unknown(self, user: str | None, mechanism: str) -> str:
        """The user or, counted and said, the name of those who can't be known."""
        if user is not None:
            return user
        self._counters.unknown_principals += 1
        self._notify(
            Notice(
                event="principal can't be read",
                severity=Severity.WARNING,
                fields={"mechanism": mechanism, "counts_as": self._unknown},
            )
        )
        return self._unknown


def _claimed_name(mechanism: str, token: bytes, claim: str) -> str | None:
    """The user that a client's first token names; None where it names somebody else's token.

    Raises `ProtocolError` for a token that isn't one.
    """
    if mechanism == PLAIN:
        return plain_user(token)
    if mechanism == OAUTHBEARER:
        return oauthbearer_subject(token, claim=claim)
    identity = scram_identity(token)
    return None if identity.is_delegation_token else identity.name
