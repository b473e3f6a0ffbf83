"""A broker's side of one connection, as far as who the client is decides about it: a model, not a broker.

Written from Kafka's own classes and independent of the code under test: `SaslServerAuthenticator` (authenticate,
handleKafkaRequest, handleSaslToken, reauthenticate), `BrokerConnection.maybeBeginServerReauthentication`,
`Processor.processCompletedReceives` and `KafkaApis.handleSaslHandshakeRequest` of 4.3.1. One request after the other is
taken, whole, and answered before the next. Passwords are "secret"; PLAIN and SCRAM name the user in the first token,
Kerberos takes two tokens and makes everybody `KERBEROS`.
"""

import struct
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.support.frames.enforcement import fetch_response, framed, produce_response, question_answer, response
from tests.support.frames.sasl_frames import authenticate_answer, handshake_answer

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.api_table import ErrorCode

PRODUCE, FETCH, METADATA, HEARTBEAT = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.HEARTBEAT
HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
API_VERSIONS, CREATE_TOPICS, SHARE_FETCH = ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.SHARE_FETCH
ILLEGAL_STATE, REFUSED = ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.SASL_AUTHENTICATION_FAILED
UNSUPPORTED_MECHANISM = ErrorCode.UNSUPPORTED_SASL_MECHANISM
ANONYMOUS, KERBEROS = "User:ANONYMOUS", "User:kerberos"
LAST_API = 92
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "GSSAPI")


class State(Enum):
    """`SaslServerAuthenticator.SaslState`.

    Re-authentication is told from the first by `Broker.principal`.
    """

    INITIAL_REQUEST = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    REAUTH_BAD_MECHANISM = auto()
    COMPLETE = auto()


class AuthenticationError(Exception):
    """Ends the connection, once its answer (None: there is none) has gone out."""

    def __init__(self, answer: bytes = b"") -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass
class Served:
    """A request that reached the broker's APIs, and for whom."""

    principal: str
    api_key: int
    correlation_id: int
    frame: bytes


@dataclass
class Broker:
    """One connection to it.

    `sizes` says how large the answer to a Fetch is, by its correlation id.
    """

    requires_sasl: bool
    reauthenticates: bool
    sizes: dict[int, int] = field(default_factory=dict)
    received: bytes = b""
    served: list[Served] = field(default_factory=list)
    is_closed: bool = False
    state: State = State.INITIAL_REQUEST
    principal: str | None = None
    mechanism: str = ""
    first_mechanism: str = ""
    tokens: list[bytes] = field(default_factory=list)
    has_headers: bool = False

    def __post_init__(self) -> None:
        if not self.requires_sasl:
            self.state, self.principal = State.COMPLETE, ANONYMOUS

    def take(self, data: bytes) -> None:
        """Take bytes that arrived."""
        if not self.is_closed:
            self.received += data

    def step(self) -> bytes | None:
        """The answer to the next request that is there as a whole ("" for none), None where there is none."""
        if self.is_closed or len(self.received) < 4:
            return None
        end = 4 + struct.unpack_from(">i", self.received)[0]
        if len(self.received) < end:
            return None
        frame, self.received = self.received[:end], self.received[end:]
        try:
            return self._serve(frame) if self.state is State.COMPLETE else self._authenticate(frame)
        except AuthenticationError as error:
            self.is_closed = True
            return error.answer

    def _serve(self, frame: bytes) -> bytes:
        if not _is_request(frame):
            raise AuthenticationError
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if key == HANDSHAKE and self.requires_sasl and self.reauthenticates:
            self.state, self.has_headers, self.first_mechanism = State.HANDSHAKE_REQUEST, False, self.mechanism
            return self._authenticate(frame)
        assert self.principal is not None
        self.served.append(Served(self.principal, key, correlation_id, frame))
        return self._answer(frame, key, version, correlation_id, error=ILLEGAL_STATE)

    def _answer(self, frame: bytes, key: int, version: int, correlation_id: int, *, error: int) -> bytes:
        """What the APIs answer.

        SASL is not for them.
        """
        if key == PRODUCE:
            name = struct.unpack_from(">h", frame, 12)[0]
            acks = struct.unpack_from(">h", frame, 14 + name + 2)[0]
            return produce_response(correlation_id, version=version) if acks else b""
        if key == FETCH:
            return fetch_response(correlation_id, version=version, size=self.sizes.get(correlation_id, 100))
        if key == SHARE_FETCH:
            return share_fetch_answer(correlation_id, self.sizes.get(correlation_id, 100))
        if key == METADATA:
            return question_answer(correlation_id)
        if key == API_VERSIONS:
            return response(correlation_id, struct.pack(">hi", 0, 0))
        if key == HANDSHAKE:
            return handshake_answer(error=error, correlation_id=correlation_id)
        if key == AUTHENTICATE:
            return authenticate_answer(error=error, correlation_id=correlation_id)
        return response(correlation_id, bytes(4) + b"result")

    def _authenticate(self, frame: bytes) -> bytes:
        if self.state is State.REAUTH_BAD_MECHANISM:
            raise AuthenticationError
        if self.state is State.AUTHENTICATE:
            return self._take_token(frame)
        is_first = self.state is State.INITIAL_REQUEST
        if not _is_request(frame):
            if not is_first:
                raise AuthenticationError
            self._begin("GSSAPI")  # as Kerberos clients of 0.9 start
            return self._take_token(frame)
        if is_first:
            self.state = State.HANDSHAKE_OR_VERSIONS_REQUEST
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if key == API_VERSIONS and self.state is State.HANDSHAKE_OR_VERSIONS_REQUEST:
            self.state = State.HANDSHAKE_REQUEST
            return self._answer(frame, key, version, correlation_id, error=0)
        if key != HANDSHAKE:
            raise AuthenticationError
        length = struct.unpack_from(">h", frame, 12)[0]
        mechanism = frame[14 + length + 2 :].decode()
        self.has_headers = version >= 1
        if mechanism not in MECHANISMS:
            raise AuthenticationError(handshake_answer(error=UNSUPPORTED_MECHANISM, correlation_id=correlation_id))
        if self.principal is not None and mechanism != self.first_mechanism:
            self.state = State.REAUTH_BAD_MECHANISM
        else:
            self._begin(mechanism)
        return handshake_answer(correlation_id=correlation_id)

    def _begin(self, mechanism: str) -> None:
        self.mechanism, self.tokens, self.state = mechanism, [], State.AUTHENTICATE

    def _take_token(self, frame: bytes) -> bytes:
        if not self.has_headers:
            answer = self._evaluate(frame[4:])
            if answer is None:
                raise AuthenticationError
            is_silent = self.mechanism == "GSSAPI" and self.state is State.COMPLETE
            return b"" if is_silent else framed(answer)
        if not _is_request(frame):
            raise AuthenticationError
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if key != AUTHENTICATE:
            is_metadata = key == METADATA
            error = question_answer(correlation_id, brokers=0) if is_metadata else b""
            raise AuthenticationError(error or self._answer(frame, key, version, correlation_id, error=ILLEGAL_STATE))
        name = struct.unpack_from(">h", frame, 12)[0]
        answer = self._evaluate(frame[14 + name + 4 :])
        if answer is None:
            raise AuthenticationError(authenticate_answer(error=REFUSED, correlation_id=correlation_id))
        return authenticate_answer(answer, correlation_id=correlation_id)

    def _evaluate(self, token: bytes) -> bytes | None:
        """What the mechanism says to a token, None where it refuses.

        With the last one the client is in.
        """
        self.tokens.append(token)
        count = len(self.tokens)
        if self.mechanism == "PLAIN":
            _, user, password = [*token.split(b"\0"), b"", b"", b""][:3]
            return self._let_in(user.decode(errors="replace")) if user and password == b"secret" else None
        if self.mechanism == "GSSAPI":
            if not token.startswith(b"\x60"):
                return None
            return b"\x60reply" if count == 1 else self._let_in("kerberos")
        if count == 1:
            return b"r=nonce2,s=c2FsdA==,i=4096" if token.startswith(b"n,,n=") else None
        user = self.tokens[0][5:].split(b",")[0].decode(errors="replace")
        return self._let_in(user, b"v=ok") if token == b"c=biws,r=nonce2,p=right" else None

    def _let_in(self, user: str, answer: bytes = b"") -> bytes | None:
        principal = f"User:{user}"
        if self.principal not in (None, principal):
            return None  # who authenticates again has to be who he was
        self.principal, self.state = principal, State.COMPLETE
        return answer


def share_fetch_answer(correlation_id: int, record_bytes: int) -> bytes:
    """A ShareFetch response of version 1 with the records of one partition."""
    size = record_bytes + 1
    length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    partition = struct.pack(">ihbhbii", 0, 0, 0, 0, 0, 1, 1) + b"\x00" + length + b"\xee" * record_bytes + b"\x01\x00"
    head = struct.pack(">bihbi", 0, 0, 0, 0, 30_000)
    return response(correlation_id, head + b"\x02" + bytes(16) + b"\x02" + partition + b"\x00\x01\x00")


def _is_request(frame: bytes) -> bool:
    """Whether a frame can have the header of a request that a broker knows."""
    return len(frame) >= 14 and 0 <= struct.unpack_from(">h", frame, 4)[0] <= LAST_API
