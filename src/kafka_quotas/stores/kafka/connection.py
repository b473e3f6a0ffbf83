"""A connection to one broker, with a deadline for each exchange of frames.

Contract: any failure of the network is an `OSError`, and bytes that are not Kafka's are a `ProtocolError`. After either
the connection is unusable. `abort` ends a running exchange from another thread.
"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.stores.kafka.errors import BrokerRefusedError
from kafka_quotas.stores.reachability import network_reason
from kafka_quotas.stores.server_address import ServerAddress
from kafka_quotas.wire.client.request import ClientRequest, read_answer, request_frame
from kafka_quotas.wire.codec.frame import FRAME_LENGTH_BYTES, checked_frame_length

LARGEST_RESPONSE: Final = 256 * 1024 * 1024
"""Bytes, of which a hundred thousand entities take about 10 MB."""
_PIECE: Final = 1024 * 1024
_TLS_ALERT: Final = b"\x15\x03"
_LARGEST_CORRELATION_ID: Final = 2**31 - 1
Answer = TypeVar("Answer")
Wrap: TypeAlias = Callable[[socket.socket], socket.socket]


class NoConnectionError(OSError):
    """A connection that could not be made, with the reason as text."""


class BrokerConnection:
    """An open connection to a broker, in plaintext or TLS."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        client_id: str,
        deadline_s: float,
        wrap: Wrap | None = None,
    ) -> None:
        """Connect to the broker.

        Args:
            address: The broker's address.
            client_id: The client-id of all requests.
            deadline_s: The time by which the connection is there.
            wrap: Puts TLS over the socket before the first byte, None for plaintext.

        Raises:
            NoConnectionError: The connection can't be made.
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
            if wrap is not None:
                self._socket = wrap(self._socket)
        except BaseException:
            self._socket.close()
            raise

    def exchange(
        self, request: ClientRequest[Answer], version: int, *, deadline_s: float, begin_deadline_s: float | None = None
    ) -> Answer:
        """Return the answer to a request.

        Args:
            request: The request.
            version: The version of its API.
            deadline_s: The time by which the whole answer has arrived.
            begin_deadline_s: The time by which the answer begins to arrive, None for `deadline_s`.
        """
        self._correlation_id = self._correlation_id % _LARGEST_CORRELATION_ID + 1
        frame = request_frame(request, version, correlation_id=self._correlation_id, client_id=self._client_id)
        content = self._exchanged(frame, deadline_s, begin_deadline_s)
        return read_answer(request, version, content, correlation_id=self._correlation_id)

    def exchange_raw(self, token: bytes, *, deadline_s: float) -> bytes:
        """Send a token in a raw frame and return the token that answers it."""
        return self._exchanged(len(token).to_bytes(FRAME_LENGTH_BYTES, "big") + token, deadline_s)

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
                code="SSL_AUTHENTICATION_FAILED",
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


def _left(deadline_s: float) -> float:
    """Return the seconds until a deadline.

    Raises:
        TimeoutError: The deadline has passed.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
