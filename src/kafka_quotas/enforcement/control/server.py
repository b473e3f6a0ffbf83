"""The daemon's Unix socket: who may connect, where it is, and what it answers, a line of JSON to each line.

Contract: mode 0600 unless set otherwise, and whatever the mode is, only the daemon's own user, root, and the users
that were named are served. A socket file that a dead daemon left is taken over, one that answers is not. Only the
daemon's own user and root can put another socket in its place: its folder, and every folder above, is theirs.

`{"op": "status"}` is answered with `{"ok": true, "status": {...}}`, `{"op": "reload"}` with its result once that is
known, `{"op": "unmute", "client_id": "app"}` (or `user`, or both) with the clients that were let go,
`{"op": "groups", "user": "app"}` (`client_id` and `ip` as well) with the groups around that client, requests about
quotas as `docs/reference/decision-api.md` describes, anything else with `{"ok": false, "error": "..."}`. An `id` in a
request is in its response.
Invariants: responses come in the order of the requests; a peer that does not read its responses is not read either.
"""

import asyncio
import contextlib
import json
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.groups.membership import ClientGroups
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.enforcement.decisions import (
    BATCH,
    PROTOCOL_VERSION,
    Decision,
    DecisionError,
    DecisionRequest,
    decision_to_json,
    is_decision,
    requests_from_json,
)
from kafka_quotas.enforcement.proxy.proxy_server import Unmuted
from kafka_quotas.enforcement.quotas.store_watcher import Reloaded
from kafka_quotas.enforcement.telemetry.log import error_text
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced, status_text

MAX_CONNECTIONS: Final = 128
"""Most connections at a time: a further one gets an error and is closed.

They fit into the descriptors that connections of clients leave (`proxy.connection_quotas.SPARE_DESCRIPTORS`).
"""
MAX_LINE_BYTES: Final = 1024 * 1024
MAX_PATH_BYTES: Final = 107
"""Longest path that Linux takes for a Unix socket."""
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group of a peer, as `SO_PEERCRED` returns them."""


class ControlError(KafkaQuotasError):
    """Error for a control socket that can't be used."""


def no_daemon(path: Path | str, error: OSError) -> ControlError:
    """Return the error for a control socket on which no daemon answers."""
    return ControlError(
        f"no daemon answers on {path}: {error.strerror or error}", hint="start one with kafka-quotas daemon run"
    )


def check_folder(folder: Path) -> None:
    """Check that only this user and root can replace what is in a folder.

    The folder and those above have to be this user's or root's. A folder that others may write to passes if it is
    sticky, as `/tmp` is.
    """
    real = folder.resolve(strict=True)
    for above in (real, *real.parents):
        found = above.stat()
        if found.st_uid not in (0, os.geteuid()):
            trouble = f"it belongs to user {found.st_uid}"
        elif found.st_mode & stat.S_ISVTX:
            continue
        elif found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid())):
            trouble = f"other users may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
        else:
            continue
        raise ControlError(
            f"{above} is no place for a control socket: {trouble}",
            hint="choose a path in a folder of your own with --control",
        )


_OPS: Final = "status, groups, reload, unmute, record, check, unrecord, batch"
_OWNERS_OPS: Final = {"reload": "reload it", "unmute": "end throttle times"}
"""Operations that only the daemon's own user and root may request."""

Answer: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlHandler:
    """The responses to requests on the control socket."""

    status: Callable[[], Awaitable[DaemonStatus]]
    decide: Callable[[DecisionRequest], Decision | DecisionError]
    reload: Callable[[], Awaitable[Reloaded]]
    unmute: Callable[[QuotaClient], Awaitable[Unmuted]]
    groups: Callable[[QuotaClient], ClientGroups]

    async def answer_line(self, line: bytes, *, may_reload: bool) -> bytes:
        """Return the response to one line, with its line break.

        `may_reload` lets the peer reload and unmute, as the daemon's owner may.
        """
        try:
            message = load_json(line)
        except ValueError:
            return _line({"ok": False, "error": "not JSON"})
        if not isinstance(message, dict):
            return _line({"ok": False, "error": "not an object"})
        number = {"id": message["id"]} if "id" in message else {}
        op = message.get("op")
        try:
            if op == "status":
                text = await run_sliced(status_text(await self.status()))
                return _line({"ok": True, **number})[:-2] + b',"status":' + text.encode() + b"}\n"
            answer = self._decided(message) if is_decision(op) else await self._answer(message, may_reload=may_reload)
        except KafkaQuotasError as error:
            answer = {"ok": False, "error": error.message, "hint": error.hint}
        except Exception as error:  # noqa: BLE001 - the peer gets a response in any case
            answer = {"ok": False, "error": error_text(error)}
        return _line(answer | number)

    async def _answer(self, message: Answer, *, may_reload: bool) -> Answer:
        user, client_id, ip = names = [message.get(name) for name in ("user", "client_id", "ip")]
        are_texts = all(isinstance(name, str | None) for name in names)
        match message.get("op"):
            case "reload" | "unmute" as op if not may_reload:
                error = f"only the daemon's own user may {_OWNERS_OPS[op]}"
            case "unmute" if not are_texts or user is client_id is None:
                error = "unmute names a user, a client_id, or both"
            case "groups" if not are_texts:
                error = "groups takes a user, a client_id and an ip, all of them texts"
            case "reload":
                return {"ok": True, "reloaded": asdict(await self.reload())}
            case "unmute":
                return {"ok": True, **asdict(await self.unmute(QuotaClient(user=user, client_id=client_id)))}
            case "groups":
                return {"ok": True, "groups": asdict(self.groups(QuotaClient(user=user, client_id=client_id, ip=ip)))}
            case _:
                error = f"unknown request; those there are: {_OPS}"
        return {"ok": False, "error": error}

    def _decided(self, message: Answer) -> Answer:
        try:
            requests = requests_from_json(message)
        except DecisionError as error:
            return {"ok": False, "error": error.message}
        answers: list[Answer] = []
        for request in requests:
            decided = request if isinstance(request, DecisionError) else self.decide(request)
            if isinstance(decided, DecisionError):
                answers.append({"ok": False, "error": decided.message})
            else:
                answers.append({"ok": True, **decision_to_json(decided)})
        answer = {"answers": answers, "ok": True} if message["op"] == BATCH else answers[0]
        return {"v": PROTOCOL_VERSION, **answer}


def _line(answer: Answer) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"


def _peer_uid(sock: socket.socket) -> int:
    """Return the user id of a Unix socket's peer, -1 if the kernel gives none."""
    try:
        option = socket.SO_PEERCRED  # type: ignore[attr-defined, unused-ignore]  # Linux
        credentials = sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    except OSError:
        return -1
    return int(_CREDENTIALS.unpack(credentials)[1])


class ControlServer:
    """The Unix socket of a daemon and its connections, from `start` to `close`."""

    def __init__(
        self, path: Path, handler: ControlHandler, *, mode: int = 0o600, users: frozenset[int] = frozenset()
    ) -> None:
        self.path = path
        self._handler = handler
        self._users = users
        self._mode = mode
        self._peers: set[asyncio.StreamWriter] = set()
        self._inode: int | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Serve the socket."""
        if len(os.fsencode(self.path)) > MAX_PATH_BYTES:
            raise UsageError(f"too long for a socket: {self.path}", hint="choose a shorter path with --control")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            check_folder(self.path.parent)
            if self.path.is_socket():
                self._take_over()
            sock = self._bound()
            self._inode = self.path.stat().st_ino
            self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE_BYTES)
        except OSError as error:
            raise ControlError(
                f"can't make the control socket {self.path}: {error.strerror or error}",
                hint="choose another path with --control",
            ) from error

    async def close(self) -> None:
        """Close the socket and its connections, and remove its file."""
        if self._server is not None:
            self._server.close()
            for peer in list(self._peers):
                peer.close()
            with contextlib.suppress(OSError):
                if self.is_in_place:
                    self.path.unlink()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()

    @property
    def is_in_place(self) -> bool:
        """Whether the path leads to this socket, and not to another daemon's."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_surplus = len(self._peers) >= MAX_CONNECTIONS
        self._peers.add(writer)
        uid = _peer_uid(writer.get_extra_info("socket"))
        is_owner = uid in (os.geteuid(), 0)
        try:
            if not is_owner and uid not in self._users:
                refused = f"user {uid} may not ask this daemon"
            elif is_surplus:
                refused = "too many connections"
            else:
                refused = await self._answer_lines(reader, writer, may_reload=is_owner)
            writer.write(json.dumps({"ok": False, "error": refused}).encode() + b"\n")
        except (OSError, asyncio.IncompleteReadError):
            return  # the peer has ended its connection
        finally:
            self._peers.discard(writer)
            writer.close()

    async def _answer_lines(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_reload: bool
    ) -> str:
        """Answer the lines of a peer until it ends, or return why no further one is answered."""
        line = await reader.read(1)
        if line == b"\0":
            return "the binary form was removed; send lines of JSON"
        while True:
            try:
                line += await reader.readuntil()
            except asyncio.LimitOverrunError:
                return f"a line is longer than {MAX_LINE_BYTES} bytes"
            answer = await self._handler.answer_line(line, may_reload=may_reload)
            if writer.is_closing():
                raise ConnectionResetError
            writer.write(answer)
            await writer.drain()
            await asyncio.sleep(0)  # others are served between two lines of a peer that sent many
            line = b""

    def _bound(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The umask gives the file its mode at once, so no other user can open it before a `chmod`.
        before = os.umask(0o777 & ~self._mode)
        try:
            sock.bind(str(self.path))
        except BaseException:
            sock.close()
            raise
        finally:
            os.umask(before)
        return sock

    def _take_over(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                self.path.unlink()
                return
        raise ControlError(
            f"another daemon answers on {self.path}", hint="stop it, or choose another path with --control"
        )
