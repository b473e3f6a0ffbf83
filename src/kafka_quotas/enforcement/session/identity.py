"""The principal of a connection: read from the SASL exchange as it passes, valid once the broker reports success.

docs/project/architecture.md draws `SaslState`. Invariants: this module checks and answers nothing, the broker does
both; a name never holds before the broker's success, and is the one in the request that the broker answered. What
can't be read (GSSAPI, tokens of other mechanisms, SCRAM with a delegation token, which does not name the token's
owner) becomes the configured fallback and is counted, never silently ANONYMOUS. No request follows an authentication
request before the broker has answered it: a broker too takes one after the other. The daemon charges nothing to a
connection before the broker has shown that it serves it: by completing authentication, or by answering a request that
only an authenticated client gets answered. Where TLS ends at the daemon the name in the client's certificate holds
until SASL names another.

**Source:** KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator`, `BrokerConnection.maybeBeginServerReauthentication`,
`KafkaApis.handleSaslHandshakeRequest`, `DefaultKafkaPrincipalBuilder` (4.3.1).
"""

from enum import Enum
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.groups.membership import UNKNOWN_PEER, Peer
from kafka_quotas.enforcement.config.rules import ANONYMOUS, EnforcementRules
from kafka_quotas.enforcement.session.frames import Frame
from kafka_quotas.enforcement.session.in_flight import (
    API_VERSIONS,
    AUTHENTICATION,
    RAW_TOKEN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    InFlightRequest,
)
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify
from kafka_quotas.wire.client.admin import MetadataRequest
from kafka_quotas.wire.client.request import request_frame
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, MAX_UNAUTHENTICATED_BYTES, checked_frame_length
from kafka_quotas.wire.codec.skip import Buffer
from kafka_quotas.wire.protocol.api_table import ErrorCode
from kafka_quotas.wire.protocol.header import RequestHeader, parse_request_header
from kafka_quotas.wire.proxying.sasl import (
    RAW_TOKENS_UNTIL,
    SaslExchange,
    authenticate_result,
    authenticate_token,
    handshake_error_code,
    handshake_mechanism,
    raw_token,
)
from kafka_quotas.wire.proxying.topics import has_brokers

UNAUTHENTICATED_APIS: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
MAX_UNAUTHENTICATED_REQUESTS: Final = 32
"""Most requests and tokens of an unauthenticated client: Kerberos takes some 8, all others fewer."""
BROKERS_VERSION: Final = 1
"""The version of Metadata to ask for brokers: the first that can name no topic, since Kafka 0.10."""
_REQUEST_START: Final = 0
"""First byte of every request: the upper half of an API key. No opaque mechanism's token starts like that."""


class SaslState(Enum):
    """The progress of a connection's authentication.

    The names are those of Kafka's `SaslServerAuthenticator.SaslState`. One state covers Kafka's HANDSHAKE_REQUEST and
    HANDSHAKE_OR_VERSIONS_REQUEST, and re-authentication has the states of the first authentication: the daemon does the
    same in them.
    """

    INITIAL_REQUEST = "initial request"
    """No byte has come yet; a Kerberos token without a header may."""
    HANDSHAKE_OR_VERSIONS_REQUEST = "handshake or versions request"
    """The client has not authenticated, and it is not known whether it has to."""
    AUTHENTICATE = "authenticate"
    """The broker accepted the mechanism: only tokens may follow."""
    AUTHENTICATE_OR_COMPLETE = "authenticate or complete"
    """The broker accepted a token of an opaque mechanism; only the client knows whether it was the last."""
    COMPLETE = "complete"
    """The broker serves the client."""
    FAILED = "failed"
    """The broker refused a mechanism or a token, and closes the connection."""


COMPLETE: Final = SaslState.COMPLETE
"""The member as a plain name: it is looked up for nearly every request."""


class PrincipalTracker:
    """The principal of one connection."""

    def __init__(
        self, *, rules: EnforcementRules, counters: Counters, notify: Notify, peer: Peer = UNKNOWN_PEER
    ) -> None:
        self.peer = peer
        """The listener and address that it comes from, by which it may be in a group."""
        self._fixed = rules.principal
        self._unknown = rules.unknown_principal
        self._bearer_claim = rules.oauthbearer_claim
        self._requires_authentication = rules.requires_authentication
        self._counters = counters
        self._notify = notify
        self._sasl: SaslExchange | None = None
        self._offered: SaslExchange | None = None
        """The exchange that the last SaslHandshake asks for, at most one of which is under way."""
        self._request_count = 0
        self.state = SaslState.INITIAL_REQUEST
        self.principal = rules.principal or ANONYMOUS
        """The name that quotas are looked up by."""

    @property
    def expects_tokens(self) -> bool:
        """Whether the client's next frame is a token without a header."""
        return self.state is SaslState.AUTHENTICATE and self._sasl is not None and self._sasl.is_raw

    @property
    def reads_tokens(self) -> bool:
        """Whether the daemon can read the tokens, so that it knows that each gets a response."""
        return self._sasl is not None and self._sasl.is_readable

    def take_certificate(self, user: str | None) -> None:
        """Take the principal that the mapping rules give for a client's certificate, None if no rule matches."""
        if self._fixed is None:
            self.principal = self._or_unknown(user, "client certificate")

    def admit(self, header: RequestHeader) -> None:
        """Check that a client may send a request before the broker serves it, in any state but `COMPLETE`."""
        if self.state is SaslState.INITIAL_REQUEST:
            self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
        # A broker delays its close after a failure (KIP-306), and reads nothing meanwhile.
        if self.state is SaslState.FAILED:
            raise ProtocolError("a request came after the broker had refused the client")
        if header.api_key in UNAUTHENTICATED_APIS:
            # Gathered for a client that nobody knows yet: `sasl.server.max.receive.size` bounds it at a broker.
            self._count_request()
            if header.frame_length > MAX_UNAUTHENTICATED_BYTES:
                raise ProtocolError(f"an authentication request announces {header.frame_length} bytes")
        # A broker takes only tokens during an exchange. After an opaque token the exchange may have ended.
        elif self.state is SaslState.AUTHENTICATE or (
            self._requires_authentication and self.state is not SaslState.AUTHENTICATE_OR_COMPLETE
        ):
            raise ProtocolError(
                f"a request of API {header.api_key} came before authentication",
                hint="the listener is for clients that authenticate by SASL",
            )

    def needs_proof(self, header: RequestHeader, *, is_charged: bool) -> bool:
        """Return whether the broker must show that it serves the client before a request passes."""
        # A broker never charges an unauthenticated client, and only the broker knows whether a client must
        # authenticate. Otherwise any client could draw on the buckets of another one by using its client-id.
        if header.api_key in UNAUTHENTICATED_APIS:
            return False
        return is_charged or self.state is SaslState.AUTHENTICATE_OR_COMPLETE

    def proof_request(self, header: RequestHeader) -> bytes:
        """Return a request that a broker answers only to a client that it serves: a Metadata of no topic."""
        # An authenticator takes nothing but ApiVersions and SASL: it closes the connection, or answers with an error
        # that names no broker (`SaslServerAuthenticator.handleKafkaRequest`).
        return request_frame(
            MetadataRequest(), BROKERS_VERSION, correlation_id=header.correlation_id, client_id=header.client_id
        )

    def _count_request(self) -> None:
        self._request_count += 1
        if self._request_count > MAX_UNAUTHENTICATED_REQUESTS:
            raise ProtocolError(f"more than {MAX_UNAUTHENTICATED_REQUESTS} requests came before authentication")

    def expect_opaque_tokens(self) -> None:
        """Expect bare tokens from now on, as from the Kerberos clients of Kafka 0.9."""
        self._sasl = SaslExchange("GSSAPI", is_raw=True)
        self.state = SaslState.AUTHENTICATE

    def begin_token(self, chunk: memoryview, offset: int) -> InFlightRequest | None:
        """Return the bare token at an offset, None if bytes are missing or the tokens are over."""
        length = checked_frame_length(chunk, offset, limit=MAX_UNAUTHENTICATED_BYTES)
        # Clients of version 0 of SaslHandshake send tokens without a header (KIP-43), up to their first request.
        # The first byte after the length tells a request from an opaque token.
        if length is None or (length and len(chunk) == offset + FRAME_LENGTH_BYTES):
            return None
        self._count_request()
        is_read = self.reads_tokens
        # The end of an exchange that can be read is known from the broker's tokens.
        if not is_read and length and chunk[offset + FRAME_LENGTH_BYTES] == _REQUEST_START:
            self.state = SaslState.AUTHENTICATE_OR_COMPLETE
            return None
        request = InFlightRequest((RAW_TOKEN, 0), 0, length, AUTHENTICATION)
        # How many responses an opaque mechanism sends is unknown, so its tokens stream both ways without pairing.
        request.expects_response = request.blocks_next = is_read
        request.decision = Frame(length + FRAME_LENGTH_BYTES, gather=is_read)
        return request

    def read_request(self, request: InFlightRequest, frame: bytearray) -> None:
        """Read the mechanism or the name in a whole authentication request or bare token."""
        if request.api_key == RAW_TOKEN:
            token = raw_token(frame)
        else:
            header = parse_request_header(frame)
            assert header is not None, "the request was gathered whole"
            if request.api_key == SASL_HANDSHAKE:
                mechanism = handshake_mechanism(frame, header)
                self._offered = SaslExchange(mechanism, is_raw=header.api_version <= RAW_TOKENS_UNTIL)
                return
            token = authenticate_token(frame, header)
        if self._sasl is not None:
            self._sasl.read(token, bearer_claim=self._bearer_claim)

    def read_response(self, request: InFlightRequest, frame: bytearray) -> None:
        """Take the broker's whole response to an authentication request or bare token."""
        # A token without a header has no error code: a broker that refuses it closes the connection.
        if request.api_key == RAW_TOKEN:
            self._take_success(raw_token(frame))
            return
        if request.api_key == SASL_HANDSHAKE:
            error_code = handshake_error_code(frame, request.api_version)
            # SaslHandshake only agrees on a mechanism, at first and in re-authentication (KIP-43, KIP-368).
            # The exchange begins only now: a refused mechanism must not change the principal.
            if error_code == ErrorCode.NONE:
                self._sasl = self._offered
                self.state = SaslState.AUTHENTICATE
                return
        else:
            error_code, token = authenticate_result(frame, request.api_version)
            if error_code == ErrorCode.NONE:
                self._take_success(token)
                return
        if error_code != ErrorCode.ILLEGAL_SASL_STATE or self.state is SaslState.AUTHENTICATE:
            self.state = SaslState.FAILED  # in re-authentication too: the broker closes the connection
        elif self.state is SaslState.HANDSHAKE_OR_VERSIONS_REQUEST:
            # An authenticator in this state accepts a mechanism or refuses it, so the listener has no SASL. In other
            # states nothing changes: the client is authenticated already, or may be.
            self._served()

    def take_other_response(self, request: InFlightRequest) -> None:
        """Record that the broker answered a request."""
        # An authenticator answers only the APIs in `UNAUTHENTICATED_APIS`, so any other response shows that the client
        # is served.
        if request.api_key >= 0 and request.api_key not in UNAUTHENTICATED_APIS:
            self._served()

    def _served(self) -> None:
        """Enter `COMPLETE` for a client that the broker serves without SASL."""
        if self.state is SaslState.HANDSHAKE_OR_VERSIONS_REQUEST and not self._requires_authentication:
            self.state = SaslState.COMPLETE

    def take_proof(self, frame: Buffer) -> None:
        """Take the broker's response to our `proof_request`."""
        if self.state is SaslState.AUTHENTICATE_OR_COMPLETE:
            # An authenticator that still expects a token may answer too, with an error that names no broker.
            if has_brokers(frame):
                self._succeed()
            else:
                self.state = SaslState.FAILED
        else:
            self._served()

    def _take_success(self, token: bytes) -> None:
        """Make the named user the principal if this token from the broker ends the exchange."""
        sasl = self._sasl
        # GSSAPI takes a number of tokens that only its two ends know.
        if sasl is not None and not sasl.is_readable:
            self.state = SaslState.AUTHENTICATE_OR_COMPLETE
        elif sasl is None or sasl.is_last(token):
            self._succeed()

    def _succeed(self) -> None:
        self._counters.authentications += 1
        self.state = SaslState.COMPLETE
        sasl, self._sasl = self._sasl, None
        self._request_count = 0
        if self._fixed is None:
            self.principal = self._or_unknown(
                None if sasl is None else sasl.user, "none" if sasl is None else sasl.mechanism
            )

    def _or_unknown(self, user: str | None, mechanism: str) -> str:
        if user is not None:
            return user
        self._counters.unknown_principals += 1
        event = "principal can't be read"
        self._notify(LogEvent.of(event, LogLevel.WARNING, mechanism=mechanism, counts_as=self._unknown))
        return self._unknown
