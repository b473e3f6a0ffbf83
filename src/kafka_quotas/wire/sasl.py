"""The messages of authentication, as far as one who relays them has to understand them.

A client names a mechanism in SaslHandshake and then sends tokens until the broker is content. After handshake version
0 the tokens travel in *raw frames*, four bytes of length and the token, in both directions, without any header or
correlation id, until the mechanism is through; after version 1 each travels in SaslAuthenticate. On an authenticated
connection the pair may come again (re-authentication). None of these messages has a throttle time.
Very old clients send a raw Kerberos token without any handshake: it starts with 0x60 where a request has its API key.

**Source:** KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator`, `SaslClientAuthenticator`, Kafka 4.1.
"""

from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.utf8 import decode_utf8
from kafka_quotas.wire.api_table import API_TABLE
from kafka_quotas.wire.frame import FRAME_LENGTH_BYTES
from kafka_quotas.wire.request_header import RequestHeader
from kafka_quotas.wire.walk import (
    Buffer,
    TruncatedError,
    bytes_field,
    compact_span,
    compact_string,
    read_int16,
    read_int32,
    string,
    string_span,
)
from kafka_quotas.wire.whole_frame import whole_response_body

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
RAW_TOKENS_UNTIL: Final = 0
"""Last version of SaslHandshake after which tokens travel in raw frames."""
SESSION_LIFETIME_SINCE: Final = 1
GSSAPI_TOKEN_START: Final = 0x60

_FLEXIBLE_SINCE: Final = API_TABLE[SASL_AUTHENTICATE].request_flexible_since


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateResult:
    """A broker's answer to one token.

    `session_lifetime_ms` is how long the session lasts before the client has to authenticate again; 0 for ever, or
    said by a version that can't tell.
    """

    error_code: int
    token: bytes
    session_lifetime_ms: int


def handshake_mechanism(frame: Buffer, header: RequestHeader) -> str:
    """Return the mechanism that a SaslHandshake request asks for ("PLAIN", "SCRAM-SHA-256", ...).

    *Raises* `ProtocolError` if the request, which has to be at hand as a whole, ends before it.
    """
    start, end = string_span(frame, header.end, _whole_end(frame, header))
    return decode_utf8(bytes(frame[start:end]))


def handshake_error_code(frame: Buffer, api_version: int) -> int:
    """Return the error code of a whole SaslHandshake response; 0 means that the broker takes the mechanism."""
    return read_int16(frame, whole_response_body(SASL_HANDSHAKE, api_version, frame), len(frame))


def authenticate_token(frame: Buffer, header: RequestHeader) -> bytes:
    """Return the token of a SaslAuthenticate request.

    *Raises* `ProtocolError` if the request, which has to be at hand as a whole, ends before the token does.
    """
    start, end = _bytes_span(frame, header.end, _whole_end(frame, header), header.api_version)
    return bytes(frame[start:end])


def authenticate_result(frame: Buffer, api_version: int) -> AuthenticateResult:
    """Return what a whole SaslAuthenticate response says. *Raises* `ProtocolError` if it is none."""
    end = len(frame)
    offset = whole_response_body(SASL_AUTHENTICATE, api_version, frame)
    error_code = read_int16(frame, offset, end)
    offset = (compact_string if api_version >= _FLEXIBLE_SINCE else string)(frame, offset + 2, end)
    token_start, token_end = _bytes_span(frame, offset, end, api_version)
    lifetime_ms = 0
    if api_version >= SESSION_LIFETIME_SINCE:
        lifetime_start = max(token_start, token_end)
        if lifetime_start + 8 > end:
            raise TruncatedError
        lifetime_ms = int.from_bytes(frame[lifetime_start : lifetime_start + 8], "big", signed=True)
    token = bytes(frame[token_start:token_end])
    return AuthenticateResult(error_code=error_code, token=token, session_lifetime_ms=lifetime_ms)


def raw_token(frame: Buffer) -> bytes:
    """Return the token of a raw frame: all behind its length field."""
    return bytes(frame[FRAME_LENGTH_BYTES:])


def starts_with_gssapi_token(buffer: Buffer, offset: int = 0) -> bool | None:
    """Return whether the frame at `offset` is a bare Kerberos token, or None if more bytes are needed to tell.

    The API key of a request would be 0x60nn, far above any that exists.
    """
    if len(buffer) - offset <= FRAME_LENGTH_BYTES:
        return None
    return buffer[offset + FRAME_LENGTH_BYTES] == GSSAPI_TOKEN_START


def _whole_end(frame: Buffer, header: RequestHeader) -> int:
    if len(frame) < header.frame_end:
        raise ProtocolError("an authentication request is not at hand as a whole")
    return header.frame_end


def _bytes_span(frame: Buffer, offset: int, end: int, api_version: int) -> tuple[int, int]:
    """Return where the content of a bytes field of SaslAuthenticate is; for null the end is before the start."""
    if api_version >= _FLEXIBLE_SINCE:
        return compact_span(frame, offset, end)
    behind = bytes_field(frame, offset, end)
    return offset + 4, behind if read_int32(frame, offset, end) >= 0 else offset + 3
