"""The messages of authentication that a proxy has to understand, and the name in the first token.

A client names a mechanism in SaslHandshake and then sends tokens until the broker is satisfied. After handshake version
0 the tokens travel in *raw frames*, four bytes of length and the token, in both directions, without any header or
correlation id, until the mechanism is complete. After version 1 each travels in SaslAuthenticate. On an authenticated
connection the pair may come again (re-authentication). None of these messages has a throttle time.
Very old clients send a raw Kerberos token without any handshake: it starts with 0x60 where a request has its API key.

Only the broker checks passwords and signatures. A name from here is an identity only after the broker has accepted the
authentication. Names that a token doesn't hold are reported as unknown, never guessed: GSSAPI tokens are opaque, and
SCRAM with a delegation token names the token and not its owner.

**Source:** KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator`, `SaslClientAuthenticator`, Kafka 4.1; RFC 4616,
RFC 5802, RFC 7628; `PlainSaslServer`, `ScramMessages.ClientFirstMessage`, `ScramFormatter`,
`OAuthBearerClientInitialResponse`, Kafka 4.1; KIP-48 for delegation tokens, KIP-255 for OAUTHBEARER.
"""

import binascii
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.java import decode_utf8, well_formed
from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, fields_of
from kafka_quotas.wire.codec.skip import Buffer, TruncatedError, read_int16, string_span
from kafka_quotas.wire.protocol.api_table import API_TABLE
from kafka_quotas.wire.protocol.header import RequestHeader, whole_response_body

RAW_TOKENS_UNTIL: Final = 0
"""Last version of SaslHandshake after which tokens travel in raw frames."""
SESSION_LIFETIME_SINCE: Final = 1
GSSAPI_TOKEN_START: Final = 0x60

_AUTHENTICATE: Final = API_TABLE[ApiKey.SASL_AUTHENTICATE]


def handshake_mechanism(frame: Buffer, header: RequestHeader) -> str:
    """Return the mechanism that a SaslHandshake request asks for ("PLAIN", "SCRAM-SHA-256", ...)."""
    # No version of this API is flexible, so that brokers of any age can answer (KIP-482).
    start, end = string_span(frame, header.end, _whole_end(frame, header))
    return decode_utf8(bytes(frame[start:end]))


def handshake_error_code(frame: Buffer, api_version: int) -> int:
    """Return the error code of a whole SaslHandshake response, 0 if the broker accepts the mechanism."""
    return read_int16(frame, whole_response_body(ApiKey.SASL_HANDSHAKE, api_version, frame), len(frame))


def authenticate_token(frame: Buffer, header: RequestHeader) -> bytes:
    """Return the token of a SaslAuthenticate request."""
    form = _AUTHENTICATE.encoding(header.api_version)
    start, end = form.bytes_span(frame, header.end, _whole_end(frame, header))
    return bytes(frame[start:end])


def authenticate_result(frame: Buffer, api_version: int) -> tuple[int, bytes]:
    """Return the error code and the token of a whole SaslAuthenticate response."""
    form, end = _AUTHENTICATE.encoding(api_version), len(frame)
    offset = whole_response_body(ApiKey.SASL_AUTHENTICATE, api_version, frame)
    start, after = form.bytes_span(frame, form.string(frame, offset + 2, end), end)  # after the error message
    # Then follows the time until the client has to authenticate again (KIP-368).
    if max(start, after) + sum(fields_of(api_version, (SESSION_LIFETIME_SINCE, 8))) > end:
        raise TruncatedError
    return read_int16(frame, offset, end), bytes(frame[start:after])


def raw_token(frame: Buffer) -> bytes:
    """Return the token of a raw frame: everything after its length field."""
    return bytes(frame[FRAME_LENGTH_BYTES:])


def starts_with_gssapi_token(buffer: Buffer, offset: int = 0) -> bool | None:
    """Return whether the frame at `offset` is a bare Kerberos token, or None if more bytes are needed."""
    # Clients of Kafka 0.9 send it without SaslHandshake. As a request it would have the API key 0x60nn, which none has.
    if len(buffer) - offset <= FRAME_LENGTH_BYTES:
        return None
    return buffer[offset + FRAME_LENGTH_BYTES] == GSSAPI_TOKEN_START


def _whole_end(frame: Buffer, header: RequestHeader) -> int:
    if len(frame) < header.frame_end:
        raise ProtocolError("an authentication request is not at hand as a whole")
    return header.frame_end


PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"

_SCRAM_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?:m=[^,]*,)?n=(?P<name>[^,]+),r=(?P<nonce>[^,]+)(?P<extensions>(?:,[^,]*)*)"
)
_OAUTH_FIRST: Final = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01?")


def plain_user(token: bytes) -> str:
    """Return the user of a PLAIN token."""
    # RFC 4616: authzid NUL user NUL password.
    parts = _text(token).split("\0")
    if len(parts) != 3:
        raise ProtocolError("a PLAIN token has not exactly three parts")
    authzid, user, password = parts
    if not user or not password:
        raise ProtocolError("a PLAIN token has no user or no password")
    # Kafka's server refuses another authorization id, so no such token ever authenticates (`PlainSaslServer`).
    if authzid not in ("", user):
        raise ProtocolError("a PLAIN token asks to act as another user")
    return user


def scram_identity(token: bytes) -> tuple[str, bool]:
    """Return the name in a SCRAM client's first message, and whether it is a delegation token's.

    The name is unescaped: `=2C` is `,` and `=3D` is `=`.
    """
    match = _SCRAM_FIRST.fullmatch(_text(token))
    if match is None:
        raise ProtocolError("a SCRAM exchange doesn't start with a client's first message")
    name = _unescaped(match["name"])
    if match["authzid"] and _unescaped(match["authzid"]) != name:
        raise ProtocolError("a SCRAM client asks to act as another user")
    # The broker alone knows the owner of a delegation token (KIP-48).
    return name, _pairs(match["extensions"], ",").get("tokenauth", "").lower() == "true"


def oauthbearer_subject(token: bytes, *, claim: str = "sub") -> str:
    """Return the named claim of the JSON web token in an OAUTHBEARER client's first message.

    `claim` is the broker's `sasl.oauthbearer.sub.claim.name`.
    """
    match = _OAUTH_FIRST.fullmatch(_text(token))
    # RFC 7628: pairs that end with 0x01, one of them the header with the token.
    scheme, _, bearer = (_pairs(match["pairs"], "\x01") if match else {}).get("auth", "").partition(" ")
    if scheme.lower() != "bearer":
        raise ProtocolError("an OAUTHBEARER exchange doesn't start with a bearer token")
    parts = bearer.strip().split(".")
    if len(parts) != 3:
        raise ProtocolError("an OAUTHBEARER token is no JSON web token")
    subject = _claims(parts[1]).get(claim)
    if not isinstance(subject, str) or not subject:
        raise ProtocolError(f"an OAUTHBEARER token has no claim {claim!r} that is a text")
    return well_formed(subject)


@dataclass(slots=True, eq=False)
class SaslExchange:
    """One SASL exchange: its mechanism, and the user that the client's first token names."""

    mechanism: str
    is_raw: bool
    """Whether its tokens come without request headers."""
    user: str | None = None
    has_token: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether the daemon can read the mechanism's tokens."""
        return self.mechanism in (PLAIN, *SCRAM, OAUTHBEARER)

    def read(self, token: bytes, *, bearer_claim: str) -> None:
        """Take the name from the first token of an exchange: later ones hold none."""
        if self.has_token or not self.is_readable:
            return
        self.has_token = True
        try:
            if self.mechanism == PLAIN:
                self.user = plain_user(token)
            elif self.mechanism == OAUTHBEARER:
                self.user = oauthbearer_subject(token, claim=bearer_claim)
            else:
                name, is_delegation_token = scram_identity(token)
                self.user = None if is_delegation_token else name
        except ProtocolError:
            self.user = None  # the broker decides; if it accepts the token, the name stays unknown

    def is_last(self, token: bytes) -> bool:
        """Return whether a token from the broker, without an error code, ends the exchange."""
        # RFC 5802: the server's first message is a challenge; only its final one, with a signature, is success.
        if self.mechanism in SCRAM:
            return token.startswith(b"v=")
        # RFC 7628: a broker reports what is wrong with a bearer's token in a token of its own, and refuses the client
        # after the acknowledgement.
        return self.mechanism != OAUTHBEARER or not token


def _pairs(text: str, separator: str) -> dict[str, str]:
    split = (pair.partition("=") for pair in text.split(separator) if pair)
    return {name: value for name, _, value in split}


def _claims(encoded: str) -> dict[str, object]:
    try:
        # RFC 7515 leaves the padding of base64 out.
        claims = load_json(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, binascii.Error) as error:
        raise ProtocolError("an OAUTHBEARER token can't be decoded") from error
    if not isinstance(claims, dict):
        raise ProtocolError("an OAUTHBEARER token holds no claims")
    return claims


def _unescaped(name: str) -> str:
    # RFC 5802: a comma and an equals sign are the only characters that are escaped, and they always are.
    text = name.replace("=2C", ",")
    if "=" in text.replace("=3D", ""):
        raise ProtocolError("a SCRAM name is wrongly escaped")
    return text.replace("=3D", "=")


def _text(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("an authentication token is not UTF-8") from error
