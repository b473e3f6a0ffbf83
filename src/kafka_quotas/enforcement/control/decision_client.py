"""A client of the daemon's quotas for Python programs: ask, and be told how long to wait.

It speaks the binary form over one connection, and is for one thread at a time.
"""

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.enforcement.config.rules import ANONYMOUS
from kafka_quotas.enforcement.control.server import ControlError
from kafka_quotas.enforcement.decisions.binary_codec import MAGIC, frame_end, read_decisions, write_asks
from kafka_quotas.enforcement.decisions.messages import (
    ASK_TYPES,
    AskType,
    Decision,
    DecisionError,
    DecisionRequest,
    Operation,
)

TIMEOUT_S: Final = 10.0
_READ_BYTES: Final = 256 * 1024


class DecisionClient:
    """A connection to the daemon at a control socket; close it, or use it as a context manager.

    Raises `ControlError` where no daemon answers, now and at any call.
    """

    def __init__(self, path: Path | str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._number = 0
        self._received = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
            with contextlib.suppress(BrokenPipeError):  # sent away already: what was said about it can still be read
                self._socket.sendall(MAGIC)
            greeting = self._receive(len(MAGIC))
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise self._gone(error) from error
            raise
        if greeting != MAGIC:
            self.close()
            raise ProtocolError(f"what answers on {path} is no daemon of this kind, or does not let you ask")

    def record(
        self,
        quota_type: AskType | str,
        amount: float,
        *,
        user: str = ANONYMOUS,
        client_id: str = "",
        ip: str = "",
        topic: str = "",
        broker: int | None = None,
    ) -> Decision:
        """How long the client has to wait, now that it has used an amount; it is charged with that.

        Amounts are in the type's unit: bytes, ms of thread time, partitions, requests, connections. Mutations,
        connections (which go by `ip`) and bytes for a topic (by `topic`) are charged only where there is nothing to
        wait for. Raises `DecisionError` where it can't be answered.
        """
        return self.ask(
            DecisionRequest(Operation.RECORD, _type(quota_type), amount, user, client_id, ip, topic, broker)
        )

    def check(
        self,
        quota_type: AskType | str,
        amount: float = 0,
        *,
        user: str = ANONYMOUS,
        client_id: str = "",
        ip: str = "",
        topic: str = "",
        broker: int | None = None,
    ) -> Decision:
        """How long the client would have to wait if it used an amount; nothing is charged. Raises as `record` does."""
        return self.ask(DecisionRequest(Operation.CHECK, _type(quota_type), amount, user, client_id, ip, topic, broker))

    def unrecord(
        self,
        quota_type: AskType | str,
        amount: float,
        *,
        user: str = ANONYMOUS,
        client_id: str = "",
        ip: str = "",
        topic: str = "",
        broker: int | None = None,
    ) -> Decision:
        """No delay, and what is measured now that an amount was given back. Raises as `record` does."""
        return self.ask(
            DecisionRequest(Operation.UNRECORD, _type(quota_type), amount, user, client_id, ip, topic, broker)
        )

    def ask(self, ask: DecisionRequest) -> Decision:
        """The decision on one question. Raises `DecisionError` where there is none."""
        (decision,) = self.ask_all([ask])
        if isinstance(decision, DecisionError):
            raise decision
        return decision

    def ask_all(self, asks: Sequence[DecisionRequest]) -> list[Decision | DecisionError]:
        """The decisions on some questions in one message, in their order; at most `MAX_BATCH` of them.

        Raises `DecisionError` where they can't be put.
        """
        self._number = self._number + 1 & 0xFFFFFFFF
        question = write_asks(self._number, asks)
        try:
            self._socket.sendall(question)
            number, decisions = self._receive_decisions()
        except OSError as error:
            raise self._gone(error) from error
        if number != self._number or len(decisions) != len(asks):
            raise ProtocolError("the daemon answered something else than what was asked")
        return decisions

    def close(self) -> None:
        """Nothing; the connection is closed."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, count: int) -> bytes:
        """The next bytes; fewer where the daemon closes the connection."""
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

    def _gone(self, error: OSError) -> ControlError:
        return ControlError(
            f"no daemon answers on {self._path}: {error.strerror or error}",
            hint="start one with kafka-quotas daemon run",
        )


def _type(name: AskType | str) -> AskType:
    """What is asked for; raises `DecisionError` for a name that nothing has."""
    if not isinstance(name, str):
        return name
    if name not in ASK_TYPES:
        raise DecisionError(f"type is one of {', '.join(ASK_TYPES)}, not {name!r}")
    return ASK_TYPES[name]
