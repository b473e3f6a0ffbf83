"""One connection of a raw client: requests out, responses in, in order, without retries or schedule.

Contract: lives in one event loop. `on_lost` is the last call that its owner gets, and what is in flight then has no
response.
**Source:** KIP-219: a client sends nothing on a connection until the throttle time of its last response is over.
"""

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.loadtest.clients.cluster_check import LoadRefusedError
from kafka_quotas.stores.kafka.broker_client import LARGEST_RESPONSE, KafkaAccess
from kafka_quotas.stores.security.sasl import SaslMechanism
from kafka_quotas.wire.client.request import (
    AuthenticateRequest,
    ClientRequest,
    HandshakeRequest,
    read_answer,
    request_frame,
)
from kafka_quotas.wire.codec.encoding import FRAME_LENGTH_BYTES, checked_frame_length
from kafka_quotas.wire.protocol.header import RESPONSE_HEAD, RESPONSE_HEAD_BYTES

ANSWER_S: Final = 10.0
"""Default time limit of `RawConnection.ask` in seconds: a broker answers such a request at once, throttled or not."""
CORRELATION_ID_AT: Final = 8
"""The offset of the correlation id in the frame of a request."""
_LARGEST_CORRELATION_ID: Final = 2**31 - 1
_WRITE_BUFFER: Final = 4 * 1024 * 1024
Answer = TypeVar("Answer")


class InFlight(NamedTuple):
    """A request that was sent and has no response."""

    correlation_id: int
    sent_ns: int
    answered: "Callable[[RawConnection, bytes, InFlight], None]"
    """Callback for the response, with its whole frame."""
    matter: Any
    """Context of the request for `answered`."""


class RawConnection(asyncio.Protocol):
    """A connection to one broker.

    `on_lost` reports its end to the owner, `on_room` that a full write buffer has drained. `broker` distinguishes the
    connections to different brokers.
    """

    def __init__(
        self,
        *,
        on_lost: "Callable[[RawConnection, Exception | None], None]",
        on_room: Callable[[], None],
        broker: int = 0,
    ) -> None:
        self.broker = broker
        self.in_flight: deque[InFlight] = deque()
        self.blocked_until_ns = 0
        self.is_open = False
        self.is_full = False
        self._on_lost = on_lost
        self._on_room = on_room
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._correlation_id = 0
        self._asked: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the open transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Pass each complete response to the request that waits for it."""
        received = self._received
        received += data
        start = 0
        try:
            while True:
                length = checked_frame_length(received, start, limit=LARGEST_RESPONSE)
                if length is None or len(received) < start + FRAME_LENGTH_BYTES + length:
                    break
                end = start + FRAME_LENGTH_BYTES + length
                self._answer(bytes(received[start:end]))
                start = end
        except ProtocolError as error:
            self.close(error)
            return
        del received[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, once: to the request of `ask` that waits, or to the owner."""
        was_open, self.is_open = self.is_open, False
        if not was_open:
            return
        if self._asked is None or self._asked.done():
            self._on_lost(self, exc)
        else:
            self._asked.set_exception(exc if isinstance(exc, OSError) else ConnectionAbortedError("it was closed"))

    def pause_writing(self) -> None:
        """Refuse further requests while the write buffer is full."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Report that the write buffer takes requests again."""
        self.is_full = False
        self._on_room()

    def next_correlation_id(self) -> int:
        """Advance and return the correlation id for the next request."""
        self._correlation_id = self._correlation_id % _LARGEST_CORRELATION_ID + 1
        return self._correlation_id

    def send(self, frame: bytes, expected: InFlight | None) -> None:
        """Write a request, and expect a response unless `expected` is None."""
        if expected is not None:
            self.in_flight.append(expected)
        if self._transport is not None:
            self._transport.write(frame)

    def request(
        self,
        request: ClientRequest[Any],
        version: int,
        answered: "Callable[[RawConnection, bytes, InFlight], None]",
        *,
        client_id: str | None,
        now_ns: int,
        matter: Any = None,
    ) -> int:
        """Write a request whose response `answered` gets, and return its correlation id.

        The response comes with `matter`, or else the request, as its context.
        """
        correlation_id = self.next_correlation_id()
        frame = request_frame(request, version, correlation_id=correlation_id, client_id=client_id)
        self.send(frame, InFlight(correlation_id, now_ns, answered, request if matter is None else matter))
        return correlation_id

    async def ask(
        self, request: ClientRequest[Answer], version: int, *, client_id: str | None, within_s: float = ANSWER_S
    ) -> Answer:
        """Send a request and return its response, on a connection with nothing else in flight."""
        if not self.is_open:  # the transport would drop the request, and no later event would end the wait
            raise ConnectionAbortedError("it was closed")
        asked = self._asked = asyncio.get_running_loop().create_future()

        def answered(_connection: "RawConnection", content: bytes, _request: InFlight) -> None:
            if not asked.done():
                asked.set_result(content)

        try:
            async with asyncio.timeout(within_s):
                correlation_id = self.request(
                    request, version, answered, client_id=client_id, now_ns=time.monotonic_ns()
                )
                content = await asked
        finally:
            self._asked = None
        return read_answer(request, version, content[FRAME_LENGTH_BYTES:], correlation_id=correlation_id)

    def close(self, error: Exception | None = None) -> None:
        """Abort the connection and report `error`, if there is one, to its owner as the reason."""
        if self._transport is not None:
            self._transport.abort()
        if error is not None:
            self.connection_lost(error)

    def _answer(self, frame: bytes) -> None:
        if len(frame) < RESPONSE_HEAD_BYTES:
            raise ProtocolError(f"a response of {len(frame)} bytes has no correlation id")
        # A broker responds in the order of the requests of a connection.
        _, correlation_id = RESPONSE_HEAD.unpack_from(frame)
        if not self.in_flight or self.in_flight[0].correlation_id != correlation_id:
            raise ProtocolError("the broker answered what was not asked")
        request = self.in_flight.popleft()
        request.answered(self, frame, request)


CONTACT_S: Final = 10.0
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1
_LOGIN_HINT: Final = "check sasl.username, sasl.password and sasl.mechanism (-X KEY=VALUE)"
_TLS_HINT: Final = "check ssl.ca.location and the listener's protocol"


def _for_one_request() -> RawConnection:
    return RawConnection(on_lost=lambda _connection, _error: None, on_room=lambda: None)


async def opened(
    address: tuple[str, int],
    *,
    access: KafkaAccess,
    client_id: str | None,
    connection: Callable[[], RawConnection] = _for_one_request,
) -> RawConnection:
    """Open a connection to a broker and log in.

    Raises:
        LoadRefusedError: If TLS or the login fails.
        OSError: If the broker is not reached in time, which may pass.
    """
    host, port = address
    loop = asyncio.get_running_loop()
    server_hostname = host if access.tls is not None else None
    try:
        async with asyncio.timeout(CONTACT_S):
            _, made = await loop.create_connection(
                connection, host, port, ssl=access.tls, server_hostname=server_hostname, proto=socket.IPPROTO_TCP
            )
            try:
                if access.login is not None:
                    await _log_in(made, access.login, client_id=client_id, server=f"{host}:{port}")
            except BaseException:
                made.close()
                raise
    except ssl.SSLCertVerificationError as error:
        raise LoadRefusedError(f"TLS failed at {host}:{port}: {error.verify_message}", hint=_TLS_HINT) from error
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise LoadRefusedError(f"TLS failed at {host}:{port}: {reason}", hint=_TLS_HINT) from error
    return made


async def _log_in(connection: RawConnection, login: SaslMechanism, *, client_id: str | None, server: str) -> None:
    shake = HandshakeRequest(mechanism=login.mechanism)
    mechanisms = await connection.ask(shake, _HANDSHAKE_VERSION, client_id=client_id)
    if mechanisms.error_code:
        offered = ", ".join(mechanisms.offered) or "no login at this port"
        raise LoadRefusedError(f"{server} does not take sasl.mechanism {login.mechanism}, but {offered}")
    tokens = login.begin()
    try:
        token = next(tokens)
        while True:
            answer = await connection.ask(AuthenticateRequest(token=token), _AUTHENTICATE_VERSION, client_id=client_id)
            if answer.error_code:
                detail = f": {answer.error_message.rstrip('.')}" if answer.error_message else ""
                raise LoadRefusedError(f"authentication failed at {server}{detail}", hint=_LOGIN_HINT)
            token = tokens.send(answer.token)
    except StopIteration:
        return
    except ProtocolError as error:
        raise LoadRefusedError(f"authentication failed at {server}: {error.message}", hint=_LOGIN_HINT) from error
