"""A client of the daemon's quotas for Python programs: it requests decisions and returns how long to wait.

It speaks the binary form over one connection, and is for one thread at a time.
"""

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.control.server import no_daemon
from kafka_quotas.enforcement.decisions.binary_codec import MAGIC, frame_end, read_decisions, write_requests
from kafka_quotas.enforcement.decisions.messages import (
    ANY_QUOTA_TYPES,
    AnyQuotaType,
    Decision,
    DecisionError,
    DecisionRequest,
    Operation,
)

TIMEOUT_S: Final = 10.0
_READ_BYTES: Final = 256 * 1024


class Who(TypedDict, total=False):
    """The client, address or topic that a request is about, and the broker at which."""

    user: str
    """Principal of the client, by default the one of clients that did not authenticate."""
    client_id: str
    """Client-id of the client, by default empty."""
    ip: str
    """Address that connects, for connections only."""
    topic: str
    """Topic that the data is for, for topics only."""
    broker: int | None
    """Node id, None for the bootstrap server's."""


class DecisionClient:
    """A connection to the daemon at a control socket, which is also a context manager.

    Raises:
        ControlError: No daemon answers, on construction or at any call.
        ProtocolError: The peer is no such daemon, or does not let this user connect.
    """

    def __init__(self, path: Path | str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._number = 0
        self._received = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
            with contextlib.suppress(BrokenPipeError):  # refused already: the error can still be read
                self._socket.sendall(MAGIC)
            greeting = self._receive(len(MAGIC))
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise no_daemon(self._path, error) from error
            raise
        if greeting != MAGIC:
            self.close()
            raise ProtocolError(f"what answers on {path} is no daemon of this kind, or does not let you ask")

    def record(self, quota_type: AnyQuotaType | str, amount: float, **who: Unpack[Who]) -> Decision:
        """Charge a client with an amount and return how long it has to wait.

        Mutations, connections (which go by `ip`) and bytes for a topic (by `topic`) are charged only where there is
        nothing to wait for.

        Args:
            quota_type: Type of the quota, or its name.
            amount: In the type's unit: bytes, ms of thread time, partitions, requests, connections.
            who: Whom or what the amount is of, as `Who` has it.

        Raises:
            DecisionError: The daemon can't answer the request.
        """
        return self.ask(DecisionRequest(Operation.RECORD, _type(quota_type), amount, **who))

    def check(self, quota_type: AnyQuotaType | str, amount: float = 0, **who: Unpack[Who]) -> Decision:
        """Return how long a client would have to wait if it used an amount, without charging it.

        Takes and raises what `record` does.
        """
        return self.ask(DecisionRequest(Operation.CHECK, _type(quota_type), amount, **who))

    def unrecord(self, quota_type: AnyQuotaType | str, amount: float, **who: Unpack[Who]) -> Decision:
        """Give an amount back and return a decision without a delay.

        Takes and raises what `record` does.
        """
        return self.ask(DecisionRequest(Operation.UNRECORD, _type(quota_type), amount, **who))

    def ask(self, ask: DecisionRequest) -> Decision:
        """Return the decision on one request.

        Raises:
            DecisionError: There is none.
        """
        (decision,) = self.ask_all([ask])
        if isinstance(decision, DecisionError):
            raise decision
        return decision

    def ask_all(self, asks: Sequence[DecisionRequest]) -> list[Decision | DecisionError]:
        """Send requests in one message and return their decisions in the same order.

        Args:
            asks: At most `MAX_BATCH` requests.

        Raises:
            DecisionError: The requests can't be written.
            ControlError: The daemon does not answer.
            ProtocolError: The response does not match the requests.
        """
        self._number = self._number + 1 & 0xFFFFFFFF
        frame = write_requests(self._number, asks)
        try:
            self._socket.sendall(frame)
            number, decisions = self._receive_decisions()
        except OSError as error:
            raise no_daemon(self._path, error) from error
        if number != self._number or len(decisions) != len(asks):
            raise ProtocolError("the daemon answered something else than what was asked")
        return decisions

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, count: int) -> bytes:
        """Return the next bytes, fewer where the daemon closes the connection."""
        while len(self._received) < count:
            piece = self._socket.recv(_READ_BYTES)
            if not piece:
                break
            self._received += piece
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _receive_decisions(self) -> tuple[int, list[Decision | DecisionError]]:
        while (end := frame_end(self._received, 0)) is None:
            piece = self._socket.recv(_READ_BYTES)
            if not piece:
                raise ConnectionResetError("the daemon closed the connection")
            self._received += piece
        answer = read_decisions(self._received, 0)
        del self._received[:end]
        return answer


def _type(name: AnyQuotaType | str) -> AnyQuotaType:
    if not isinstance(name, str):
        return name
    if name not in ANY_QUOTA_TYPES:
        raise DecisionError(f"type is one of {', '.join(ANY_QUOTA_TYPES)}, not {name!r}")
    return ANY_QUOTA_TYPES[name]
