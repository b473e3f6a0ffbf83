"""Who a client is: read from the SASL exchange as it passes, believed once the broker has said yes.

`SaslState` is drawn in docs/architecture.md. Invariants: nothing is checked here and nothing is answered, the broker
does both; a name never holds before the broker's success, and is the one in the request that the broker answered. What
can't be read (GSSAPI, tokens of other mechanisms, SCRAM with a delegation token, which does not name the token's owner)
becomes the configured fallback and is counted, never silently ANONYMOUS. No request of authentication is followed by
another one before it was answered: a broker too takes one after the other. Nothing is charged to a connection before
the broker has shown that it serves it, by letting the client in or by answering what only the served get answered.
Where TLS ends at the daemon the name in the client's certificate holds until SASL names another.
**Source:** KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator`, `BrokerConnection.maybeBeginServerReauthentication`,
`KafkaApis.handleSaslHandshakeRequest`, `DefaultKafkaPrincipalBuilder` (4.3.1).
"""

from enum import Enum
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.config.rules import ANONYMOUS, EnforcementRules
from kafka_quotas.enforcement.session.in_flight import (
    API_VERSIONS,
    RAW_TOKEN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    InFlightRequest,
)
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify
from kafka_quotas.wire.codec.frame import MAX_UNAUTHENTICATED_BYTES
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.passing.metadata import ask_for_brokers, has_brokers
from kafka_quotas.wire.passing.sasl import (
    OAUTHBEARER,
    PLAIN,
    RAW_TOKENS_UNTIL,
    SCRAM,
    authenticate_result,
    authenticate_token,
    handshake_error_code,
    handshake_mechanism,
    oauthbearer_subject,
    plain_user,
    raw_token,
    scram_identity,
)
from kafka_quotas.wire.protocol.request_header import RequestHeader, parse_request_header

_SCRAM_SUCCESS: Final = b"v="
_READABLE: Final = (PLAIN, *SCRAM, OAUTHBEARER)
AUTHENTICATION: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""What a broker takes from one who has not authenticated."""
MAX_UNAUTHENTICATED_REQUESTS: Final = 32
"""Most requests and tokens of one who has not authenticated: Kerberos takes some 8, all others fewer."""
ILLEGAL_SASL_STATE: Final = 34
"""What a broker answers to SASL where it is not expected: on a listener without it, or when the client is in."""
_REQUEST_START: Final = 0
"""First byte of every request: the upper half of an API key. No opaque mechanism's token starts like that."""


class SaslState(Enum):
    """How far a connection's authentication is, in the words of Kafka's `SaslServerAuthenticator.SaslState`.

    Kafka's HANDSHAKE_REQUEST is not told from HANDSHAKE_OR_VERSIONS_REQUEST, and its states of re-authentication not
    from those of the first one: the daemon does the same in them.
    """

    INITIAL_REQUEST = "initial request"
    """Nothing has come; a Kerberos token without a header may."""
    HANDSHAKE_OR_VERSIONS_REQUEST = "handshake or versions request"
    """The client has not authenticated, and whether it has to is not known."""
    AUTHENTICATE = "authenticate"
    """The broker took the mechanism: tokens come, and nothing else."""
    AUTHENTICATE_OR_COMPLETE = "authenticate or complete"
    """The broker took a token of a mechanism that can't be read; only the client knows whether that was the last."""
    COMPLETE = "complete"
    """The broker serves the client."""
    FAILED = "failed"
    """The broker refused a mechanism or a token, and ends the connection."""


COMPLETE: Final = SaslState.COMPLETE
"""The member as a plain name: it is looked up for nearly every request."""


class SaslClaim:
    """What one run of authentication says about the client: the mechanism, and the name in its first token."""

    __slots__ = ("has_token", "is_raw", "mechanism", "user")

    def __init__(self, mechanism: str, *, is_raw: bool) -> None:
        self.mechanism = mechanism
        self.is_raw = is_raw
        """Whether its tokens come without headers."""
        self.user: str | None = None
        self.has_token = False

    @property
    def is_readable(self) -> bool:
        """Whether the mechanism is one whose tokens can be read; those of others only pass."""
        return self.mechanism in _READABLE

    def read(self, token: bytes, *, bearer_claim: str) -> None:
        """Take the name from the first token of an exchange; the later ones name nobody."""
        if self.has_token or not self.is_readable:
            return
        self.has_token = True
        try:
            self.user = _claimed_name(self.mechanism, token, bearer_claim)
        except ProtocolError:
            self.user = None  # the broker gives the verdict; should it be content, the name stays unknown

    def is_last(self, token: bytes) -> bool:
        """Return whether a token of the broker that came with no error ends the exchange."""
        if self.mechanism in SCRAM:
            return token.startswith(_SCRAM_SUCCESS)
        # What is wrong with a bearer's token is told in a token; the broker refuses when the client acknowledged it.
        return self.mechanism != OAUTHBEARER or not token


class PrincipalTracker:
    """The principal of one connection."""

    def __init__(self, *, rules: EnforcementRules, counters: Counters, notify: Notify) -> None:
        self._fixed = rules.principal
        self._unknown = rules.unknown_principal
        self._bearer_claim = rules.oauthbearer_claim
        self._requires_authentication = rules.requires_authentication
        self._counters = counters
        self._notify = notify
        self._claim: SaslClaim | None = None
        self._request_count = 0
        self.state = SaslState.INITIAL_REQUEST
        self.principal = rules.principal or ANONYMOUS
        """The name that quotas are looked up by."""

    @property
    def expects_tokens(self) -> bool:
        """Whether the client's next frame is a bare token, without a header."""
        return self.state is SaslState.AUTHENTICATE and self._claim is not None and self._claim.is_raw

    @property
    def reads_tokens(self) -> bool:
        """Whether the tokens that come can be read, and each of them is answered."""
        return self._claim is not None and self._claim.is_readable

    def certified(self, user: str | None) -> None:
        """Take the user that the client's certificate stands for (None: no rule says for which)."""
        if self._fixed is None:
            self.principal = self._or_unknown(user, "client certificate")

    # Requests, in front of those that wait for their responses.

    def admit(self, header: RequestHeader) -> None:
        """Let a request pass of a client that the broker does not serve yet. Not to be called once it does.

        Raises:
            ProtocolError: There were too many, it is too long, or it is not for the unauthenticated.
        """
        if self.state is SaslState.INITIAL_REQUEST:
            self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
        if self.state is SaslState.FAILED:
            raise ProtocolError("a request came after the broker had refused the client")
        if header.api_key in AUTHENTICATION:
            self._count_request()
            if header.frame_length > MAX_UNAUTHENTICATED_BYTES:
                raise ProtocolError(f"an authentication request announces {header.frame_length} bytes")
        elif self.state is SaslState.AUTHENTICATE or (
            self._requires_authentication and self.state is not SaslState.AUTHENTICATE_OR_COMPLETE
        ):
            raise ProtocolError(
                f"a request of API {header.api_key} came before authentication",
                hint="the listener is for clients that authenticate by SASL",
            )

    def wants_proof(self, header: RequestHeader, *, is_charged: bool) -> bool:
        """Return whether the broker has to show that it serves the client before a request passes.

        A broker never charges one who has not authenticated, and only it knows who has to: the requests of others
        would let anybody draw on the buckets of those whose client-id they use.
        """
        if header.api_key in AUTHENTICATION:
            return False
        return is_charged or self.state is SaslState.AUTHENTICATE_OR_COMPLETE

    def question(self, header: RequestHeader) -> bytes:
        """Return the request that only a client whom the broker serves gets answered: a Metadata of no topic.

        An authenticator takes nothing but ApiVersions and SASL: it ends the connection, or answers with an error that
        names no broker.
        """
        return ask_for_brokers(correlation_id=header.correlation_id, client_id=header.client_id)

    def _count_request(self) -> None:
        self._request_count += 1
        if self._request_count > MAX_UNAUTHENTICATED_REQUESTS:
            raise ProtocolError(f"more than {MAX_UNAUTHENTICATED_REQUESTS} requests came before authentication")

    def expect_opaque_tokens(self) -> None:
        """Take bare tokens: the client started with one, as Kerberos clients of Kafka 0.9 do."""
        self._claim = SaslClaim("GSSAPI", is_raw=True)
        self.state = SaslState.AUTHENTICATE

    def ends_tokens(self, first_byte: int | None) -> bool:
        """Return whether a frame that starts so (None: it is empty) is the first request after opaque tokens."""
        self._count_request()
        if self.reads_tokens or first_byte != _REQUEST_START:
            return False
        self.state = SaslState.AUTHENTICATE_OR_COMPLETE
        return True

    def asked(self, exchange: InFlightRequest, frame: bytearray) -> None:
        """Put what a whole request (or bare token) of authentication claims into its exchange.

        Raises:
            ProtocolError: A SaslHandshake or SaslAuthenticate request ends too early.
        """
        if exchange.api_key == RAW_TOKEN:
            token = raw_token(frame)
        else:
            header = parse_request_header(frame)
            assert header is not None, "the request was gathered whole"
            if exchange.api_key == SASL_HANDSHAKE:
                mechanism = handshake_mechanism(frame, header)
                exchange.claim = SaslClaim(mechanism, is_raw=header.api_version <= RAW_TOKENS_UNTIL)
                return
            token = authenticate_token(frame, header)
        exchange.claim = self._claim
        if self._claim is not None:
            self._claim.read(token, bearer_claim=self._bearer_claim)

    # Responses.

    def answered(self, exchange: InFlightRequest, frame: bytearray) -> None:
        """Go on by the broker's whole answer to a request (or bare token) of authentication.

        Raises:
            ProtocolError: A SaslHandshake or SaslAuthenticate response ends too early.
        """
        if exchange.api_key == SASL_HANDSHAKE:
            error_code = handshake_error_code(frame, exchange.api_version)
            if error_code == 0:
                self._claim = exchange.claim
                self.state = SaslState.AUTHENTICATE
                return
        elif exchange.api_key == RAW_TOKEN:
            self._take_success(exchange.claim, raw_token(frame))
            return
        else:
            result = authenticate_result(frame, exchange.api_version)
            error_code = result.error_code
            if error_code == 0:
                self._take_success(exchange.claim, result.token)
                return
        self._take_error(error_code)

    def passed(self, exchange: InFlightRequest) -> None:
        """Go on by the fact that the broker answered a request, which an authenticator does to few."""
        if exchange.api_key >= 0 and exchange.api_key not in AUTHENTICATION:
            self._served()

    def _served(self) -> None:
        """Count the client as one that the broker serves without SASL."""
        if self.state is SaslState.HANDSHAKE_OR_VERSIONS_REQUEST and not self._requires_authentication:
            self.state = SaslState.COMPLETE

    def told(self, frame: Buffer) -> None:
        """Go on by the broker's answer to our `question`."""
        if self.state is SaslState.AUTHENTICATE_OR_COMPLETE:
            # Answered by the authenticator, a request that came too soon has a response as well: an error.
            if has_brokers(frame):
                self._succeed(self._claim)
            else:
                self.state = SaslState.FAILED
        else:
            self._served()

    def _take_error(self, error_code: int) -> None:
        if error_code != ILLEGAL_SASL_STATE or self.state is SaslState.AUTHENTICATE:
            self.state = SaslState.FAILED  # of re-authentication too: the broker ends the connection
        elif self.state is SaslState.HANDSHAKE_OR_VERSIONS_REQUEST:
            # An authenticator in this state accepts a mechanism or refuses it: the listener has no SASL. In others
            # nothing changes: the client is in already and does not authenticate again, or may be.
            self._served()

    def _take_success(self, claim: SaslClaim | None, token: bytes) -> None:
        """Make the claimed name the principal where a token of the broker is the last one."""
        if claim is not None and not claim.is_readable:
            self.state = SaslState.AUTHENTICATE_OR_COMPLETE
        elif claim is None or claim.is_last(token):
            self._succeed(claim)

    def _succeed(self, claim: SaslClaim | None) -> None:
        self._counters.authentications += 1
        self.state = SaslState.COMPLETE
        self._claim = None
        self._request_count = 0
        if self._fixed is None:
            self.principal = self._or_unknown(
                None if claim is None else claim.user, "none" if claim is None else claim.mechanism
            )

    def _or_unknown(self, user: str | None, mechanism: str) -> str:
        """Return the user or, counted and logged, the name of those who can't be known."""
        if user is not None:
            return user
        self._counters.unknown_principals += 1
        self._notify(
            LogEvent(
                event="principal can't be read",
                severity=LogLevel.WARNING,
                fields={"mechanism": mechanism, "counts_as": self._unknown},
            )
        )
        return self._unknown


def _claimed_name(mechanism: str, token: bytes, bearer_claim: str) -> str | None:
    """Return the user that a client's first token names; None where it names somebody else's token.

    Raises:
        ProtocolError: It is no such token.
    """
    if mechanism == PLAIN:
        return plain_user(token)
    if mechanism == OAUTHBEARER:
        return oauthbearer_subject(token, claim=bearer_claim)
    identity = scram_identity(token)
    return None if identity.is_delegation_token else identity.name
