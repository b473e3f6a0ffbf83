"""What a daemon and its successor say to each other over the control socket.

The successor begins with `UPGRADE_REQUEST`; from then on each message is a length (4 bytes, big-endian) and as many
bytes of JSON. The order is:

1. The predecessor sends an `Offer`, then a byte for each `FDS_AT_ONCE` sockets, with their descriptors (`SCM_RIGHTS`).
2. The successor sends "state" once its listeners are made. The predecessor stops accepting and sends its state.
3. The successor sends "serving". The predecessor drains, and sends every `CHARGES_S` what was charged since its state;
   the end of the connection is the end of the predecessor.

A connection that ends before "serving" ends the upgrade: the predecessor accepts again as if nothing had happened.
A response in a line, which begins with a brace, is an error.
"""

import json
import socket
import struct
from dataclasses import asdict, dataclass
from typing import Any, Final

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.control.client import RefusedError

STATE: Final = "state"
SERVING: Final = "serving"
FDS_AT_ONCE: Final = 200
"""Descriptors in one control message: Linux takes 253."""
LENGTH: Final = struct.Struct(">I")
MAX_BYTES: Final = 1 << 30
"""Longest message: the state of a million buckets has a fifth of it."""
_FDS_MARK: Final = b"\0"
_LINE: Final = b"{"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRoute:
    """A route to a broker that the predecessor knows."""

    listener: str
    """Name of the listener."""
    node_id: int
    host: str
    """Host of the broker, or of the bootstrap server."""
    port: int
    is_bootstrap: bool
    """Whether it is a bootstrap server, whose node id is known."""

    @property
    def upstream(self) -> Address:
        """The address of the broker."""
        return Address(host=self.host, port=self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a successor has to know before it makes its listeners."""

    pid: int
    roles: tuple[str, ...]
    """Roles of the sockets, in their order."""
    routes: tuple[OfferedRoute, ...]
    served: int
    """Number of the predecessor's latest connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """What was charged to one bucket."""

    broker: int | str | None
    """Node id, below 0 or None for an unknown one, or `CLUSTER`."""
    mode: str
    quota_type: str
    user: str
    client_id: str
    amount: float


def packed(message: object) -> bytes:
    """Return the bytes of a message."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def offer_message(offer: Offer) -> bytes:
    """Return the bytes of an offer."""
    return packed(asdict(offer))


def send_sockets(sock: socket.socket, sockets: list[socket.socket]) -> None:
    """Send descriptors of listening sockets, which the peer gets as copies.

    Raises:
        OSError: The peer is gone.
    """
    for start in range(0, len(sockets), FDS_AT_ONCE):
        fds = [each.fileno() for each in sockets[start : start + FDS_AT_ONCE]]
        socket.send_fds(sock, [_FDS_MARK], fds)


def receive_sockets(sock: socket.socket, count: int) -> list[socket.socket]:
    """Return as many listening sockets as were announced, in their order and without blocking mode.

    Raises:
        ProtocolError: The peer sends others.
        OSError: The peer is gone.
    """
    found: list[socket.socket] = []
    while len(found) < count:
        mark, fds, _, _ = socket.recv_fds(sock, 1, FDS_AT_ONCE, socket.MSG_CMSG_CLOEXEC)
        found.extend(socket.socket(fileno=fd) for fd in fds)
        if not (mark and fds):
            for each in found:
                each.close()
            raise ProtocolError("the daemon did not send its sockets")
    for each in found:
        each.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
    return found


def receive_offer(sock: socket.socket) -> Offer:
    """Return the offer that follows the request.

    Raises:
        RefusedError: The daemon does not let this process take its place.
        ProtocolError: What comes is no offer.
        OSError: The daemon does not answer.
    """
    if sock.recv(1, socket.MSG_PEEK) == _LINE:
        with sock.makefile("rb") as lines:
            answer = parsed(lines.readline(1 << 16))
        raise RefusedError(f"the daemon can't be upgraded: {answer.get('error')}")
    data = receive(sock)
    try:
        routes = tuple(OfferedRoute(**each) for each in data["routes"])
        roles = tuple(map(str, data["roles"]))
        return Offer(pid=int(data["pid"]), roles=roles, routes=routes, served=int(data["served"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError("the daemon's offer of its sockets can't be read") from error


def receive(sock: socket.socket) -> Any:
    """Return the next message of a blocking socket.

    Raises:
        ProtocolError: What comes is no message.
        OSError: The peer is gone.
    """
    (length,) = LENGTH.unpack(_exactly(sock, LENGTH.size))
    return parsed(_exactly(sock, checked_length(length)))


def checked_length(length: int) -> int:
    """Return the length of a message, or raise a `ProtocolError` where it can't be one."""
    if length > MAX_BYTES:
        raise ProtocolError(f"a message of {length} bytes in an upgrade")
    return length


def parsed(body: bytes) -> Any:
    """Return the content of a message, or raise a `ProtocolError` where it is no JSON."""
    try:
        return load_json(body)
    except ValueError as error:
        raise ProtocolError("a message of an upgrade can't be read") from error


def _exactly(sock: socket.socket, count: int) -> bytes:
    # No byte more: those after it may carry descriptors.
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise ConnectionResetError("the other daemon ended the connection")
        data += piece
    return bytes(data)
