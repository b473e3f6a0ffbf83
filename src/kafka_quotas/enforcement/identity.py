"""Who a client is: read from the SASL exchange as it passes, believed once the broker has said yes.

Invariants: nothing is checked here and nothing is answered, the broker does both; a name never holds before the
broker's success. What can't be read (GSSAPI, tokens of other mechanisms, SCRAM with a delegation token, which does not
name the token's owner) becomes the configured fallback and is counted, never silently ANONYMOUS. Re-authentication is
the same exchange once more.
**Source:** KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator` (4.x).
"""

from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.counters import Counters
from kafka_quotas.enforcement.exchange import RAW_TOKEN, SASL_HANDSHAKE
from kafka_quotas.enforcement.notice import Notice, Notify, Severity
from kafka_quotas.enforcement.rules import ANONYMOUS, Rules
from kafka_quotas.wire.request_header import parse_request_header
from kafka_quotas.wire.sasl import (
    RAW_TOKENS_UNTIL,
    authenticate_result,
    authenticate_token,
    handshake_error_code,
    handshake_mechanism,
    raw_token,
)
from kafka_quotas.wire.sasl_identity import PLAIN, SCRAM, plain_user, scram_identity

_SCRAM_SUCCESS: Final = b"v="
_READABLE: Final = (PLAIN, *SCRAM)
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

    def expect_opaque_tokens(self) -> None:
        """Nothing; the client started with a bare token, as Kerberos clients of Kafka 0.9 do."""
        self._mechanism = "GSSAPI"
        self.expects_tokens = True

    def ends_tokens(self, first_byte: int | None) -> bool:
        """Whether a frame that starts with this byte (None: it is empty) is the first request behind opaque tokens."""
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
            self._claimed = _claimed_name(self._mechanism, token)
        except ProtocolError:
            self._claimed = None  # the broker gives the verdict; should it be content, the name stays unknown

    def _take_answer(self, token: bytes) -> None:
        """Nothing; a success of the broker makes the claimed name the principal."""
        if self._mechanism in SCRAM and not token.startswith(_SCRAM_SUCCESS):
            return
        self.expects_tokens = False
        self._succeed()

    def _succeed(self) -> None:
        self._counters.authentications += 1
        self.is_authenticated = True
        if self._fixed is not None:
            return
        if self._claimed is None:
            self._counters.unknown_principals += 1
            self._notify(
                Notice(
                    event="principal can't be read",
                    severity=Severity.WARNING,
                    fields={"mechanism": self._mechanism, "counts_as": self._unknown},
                )
            )
        self.principal = self._unknown if self._claimed is None else self._claimed


def _claimed_name(mechanism: str, token: bytes) -> str | None:
    """The user that a client's first token names; None where it names somebody else's token.

    Raises `ProtocolError` for a token that isn't one.
    """
    if mechanism == PLAIN:
        return plain_user(token)
    identity = scram_identity(token)
    return None if identity.is_delegation_token else identity.name
