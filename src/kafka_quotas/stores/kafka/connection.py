"""A connection to one broker, in plaintext or TLS, with a deadline for each exchange of frames, and its errors.

Contract: any failure of the network is an `OSError`, and bytes that are not Kafka's are a `ProtocolError`. After either
the connection is unusable. `abort` ends a running exchange from another thread.
"""

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_quotas.core.errors import ProtocolError, StoreRefusedError, StoreUnreachableError
from kafka_quotas.stores.reachability import ServerAddress, network_reason
from kafka_quotas.wire.client.request import ClientRequest, read_answer, request_frame
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES, checked_frame_length

if TYPE_CHECKING:
    import ssl

LARGEST_RESPONSE: Final = 256 * 1024 * 1024
"""Bytes, of which a hundred thousand entities take about 10 MB."""
_PIECE: Final = 1024 * 1024
_HTTP_S: Final = 1.0
_TLS_ALERT: Final = b"\x15\x03"
_LARGEST_CORRELATION_ID: Final = 2**31 - 1
_TLS_FAILED: Final = "SSL_AUTHENTICATION_FAILED"
_PLAINTEXT_HINT: Final = (
    "the port most likely speaks plaintext: give the TLS port, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
)
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
Answer = TypeVar("Answer")


class NoConnectionError(OSError):
    """A connection that could not be made, with the reason as text."""


class ShutOutError(ConnectionError):
    """The end of a fresh connection without an answer, by a broker that is busy or at a wrong port."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BrokerRefusedError(StoreRefusedError):
    """A refusal by the broker or this client, with Kafka's name of the error as `code`."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class LostAnswerError(StoreUnreachableError):
    """A request that was sent and not answered."""


class BrokerConnection:
    """An open connection to a broker, in plaintext or TLS."""

    def __init__(
        self, address: ServerAddress, *, client_id: str, deadline_s: float, tls: "ssl.SSLContext | None" = None
    ) -> None:
        """Connect to the broker by the deadline, with a TLS handshake where `tls` is not None.

        Raises:
            NoConnectionError: The connection can't be made.
            BrokerRefusedError: One side of the handshake does not trust the other.
            ShutOutError: The broker ends the handshake.
        """
        host, port = address
        place: Any = host.encode() if host.isascii() else host  # a text would load the tables of international names
        try:
            self._socket = socket.create_connection((place, port), timeout=_left(deadline_s))
        except OSError as error:
            raise NoConnectionError(network_reason(error)) from error
        except UnicodeError as error:
            raise NoConnectionError("not a name that a host can have") from error
        self._client_id = client_id
        self._server = str(address)
        self._correlation_id = 0
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = _wrapped(self._socket, tls=tls, address=address)
        except BaseException:
            self._socket.close()
            raise

    def exchange(
        self, request: ClientRequest[Answer], version: int, *, deadline_s: float, begin_deadline_s: float | None = None
    ) -> Answer:
        """Return the answer to a request, which begins to arrive and is whole by the two deadlines."""
        self._correlation_id = self._correlation_id % _LARGEST_CORRELATION_ID + 1
        frame = request_frame(request, version, correlation_id=self._correlation_id, client_id=self._client_id)
        content = self._exchanged(frame, deadline_s, begin_deadline_s)
        return read_answer(request, version, content, correlation_id=self._correlation_id)

    def exchange_raw(self, token: bytes, *, deadline_s: float) -> bytes:
        """Send a token in a raw frame and return the token that answers it."""
        return self._exchanged(len(token).to_bytes(FRAME_LENGTH_BYTES, "big") + token, deadline_s)

    def speaks_http(self) -> bool:
        """Return whether a server that is silent was waiting for the end of a line of HTTP.

        The connection is unusable afterwards. A broker takes the line end for the length of a frame that is too large.
        """
        with suppress(OSError):
            self._socket.settimeout(_HTTP_S)
            self._socket.sendall(b"\r\n\r\n")
            return self._socket.recv(_PIECE).startswith((b"HTTP/", b"<"))
        return False

    def abort(self) -> None:
        """End an exchange in another thread with an error."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # below TLS, whose state is the other thread's

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exchanged(self, frame: bytes, deadline_s: float, begin_deadline_s: float | None = None) -> bytes:
        """Send a frame and return the content of the frame that answers it."""
        begin_deadline_s = deadline_s if begin_deadline_s is None else min(deadline_s, begin_deadline_s)
        self._socket.settimeout(_left(begin_deadline_s))
        self._socket.sendall(frame)
        field = self._received(FRAME_LENGTH_BYTES, begin_deadline_s)
        # A TLS server answers plaintext by an alert record, whose first bytes are no length of a frame.
        if field.startswith(_TLS_ALERT):
            raise BrokerRefusedError(
                f"{self._server} speaks TLS, and was spoken to in plaintext",
                code=_TLS_FAILED,
                hint="set security.protocol to SSL or SASL_SSL in the file named with --command-config",
            )
        length = checked_frame_length(field, 0, limit=LARGEST_RESPONSE)
        if length is None:
            raise ProtocolError("a frame without a length")
        return self._received(length, deadline_s)

    def _received(self, count: int, deadline_s: float) -> bytes:
        pieces: list[bytes] = []
        while count:
            self._socket.settimeout(_left(deadline_s))
            piece = self._socket.recv(min(count, _PIECE))
            if not piece:
                raise ConnectionAbortedError("the connection was closed")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)


def _wrapped(plain: socket.socket, *, tls: "ssl.SSLContext", address: ServerAddress) -> socket.socket:
    import ssl  # noqa: PLC0415 - most clusters need none

    try:
        return tls.wrap_socket(plain, server_hostname=address.host)
    except (ssl.SSLEOFError, ConnectionError) as error:
        raise ShutOutError(f"{address} ended the TLS handshake", hint=_PLAINTEXT_HINT) from error
    except ssl.SSLError as error:
        raise tls_refusal(error, server=str(address)) from error


def tls_refusal(error: "ssl.SSLError", *, server: str) -> BrokerRefusedError:
    """Return our error for one of TLS."""
    hint = "check the trust store and the security settings in the file named with --command-config"
    reason = error.reason or ""
    if reason in _NOT_TLS:
        hint = _PLAINTEXT_HINT
    elif reason.endswith("CERTIFICATE_REQUIRED"):
        hint = "the broker wants a certificate of the client: name it with ssl.keystore.location"
    shown = getattr(error, "verify_message", "") or reason.replace("_", " ").lower() or str(error)
    return BrokerRefusedError(f"no TLS connection to {server}: {shown}", code=_TLS_FAILED, hint=hint)


def _left(deadline_s: float) -> float:
    """Return the seconds until a deadline, or raise a `TimeoutError` after it."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
