"""The daemon's Unix socket: one JSON object per line asks, one per line answers.

Contract: `{"op": "status"}` is answered with `{"ok": true, "status": {...}}`, anything else with
`{"ok": false, "error": "..."}`. Only the daemon's own user can connect (mode 0600). A socket file that a dead daemon
left is taken over, one that answers is not.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError, UsageError
from kafka_quotas.enforcement.status import DaemonStatus, status_from_json, status_to_json

MAX_LINE_BYTES: Final = 64 * 1024
IDLE_S: Final = 30.0
"""How long a silent client of the socket is kept."""
ANSWER_S: Final = 10.0
"""How long `ask_status` waits for a daemon."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_MAX_PATH_BYTES: Final = 107


class ControlError(KafkaQuotasError):
    """The control socket can't be used."""


class ControlServer:
    """Serves the socket until it is closed."""

    def __init__(self, path: Path, status: Callable[[], DaemonStatus]) -> None:
        self.path = path
        self._status = status
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Nothing; the socket is served.

        Raises `UsageError` for a path that can't be one, `ControlError` where it can't be made or is another daemon's.
        """
        if len(os.fsencode(self.path)) > _MAX_PATH_BYTES:
            raise UsageError(f"too long for a socket: {self.path}", hint="choose a shorter path with --control")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.path.is_socket():
                self._take_over()
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                sock.bind(str(self.path))
            except BaseException:
                sock.close()
                raise
            finally:
                os.umask(before)
            self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE_BYTES)
        except OSError as error:
            raise ControlError(
                f"can't make the control socket {self.path}: {error.strerror or error}",
                hint="choose another path with --control",
            ) from error

    async def close(self) -> None:
        """Nothing; the socket and its file are gone."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()

    def _take_over(self) -> None:
        """Nothing; the file of a daemon that is gone is removed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                self.path.unlink()
                return
        raise ControlError(
            f"another daemon answers on {self.path}", hint="stop it, or choose another path with --control"
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                async with asyncio.timeout(IDLE_S):
                    line = await reader.readline()
                if not line:
                    break
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass  # silent, too long a line, or gone: whoever asked sees the connection end
        finally:
            writer.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
        except ValueError:
            return {"ok": False, "error": "not JSON"}
        if not isinstance(asked, dict) or asked.get("op") != "status":
            return {"ok": False, "error": 'unknown request; the one there is: {"op": "status"}'}
        return {"ok": True, "status": status_to_json(self._status())}


def ask_status(path: Path) -> DaemonStatus:
    """The status of the daemon that serves a control socket.

    Raises `ControlError` where none does, `ProtocolError` where the answer can't be understood.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(ANSWER_S)
            sock.connect(str(path))
            sock.sendall(b'{"op": "status"}\n')
            with sock.makefile("rb") as lines:
                answer = json.loads(lines.readline(MAX_ANSWER_BYTES))
    except OSError as error:
        raise ControlError(
            f"no daemon answers on {path}: {error.strerror or error}", hint="start one with kafka-quotas daemon run"
        ) from error
    except ValueError as error:
        raise ProtocolError(f"what answers on {path} is no daemon of this kind") from error
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        raise ProtocolError(f"the daemon on {path} refused: {answer}")
    return status_from_json(answer.get("status"))
