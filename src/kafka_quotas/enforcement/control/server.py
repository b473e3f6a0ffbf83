"""The daemon's Unix socket: who may connect, and where it is.

Contract: mode 0600 unless set otherwise, and whatever the mode is, only the daemon's own user, root, and the users
that were named are served. A socket file that a dead daemon left is taken over, one that answers is not. Only the
daemon's own user and root can put another socket in its place: its folder, and every folder above, is theirs.
"""

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.enforcement.config.settings import ControlAccess
from kafka_quotas.enforcement.control.connection import ControlConnection
from kafka_quotas.enforcement.control.handler import ControlHandler

MAX_CONNECTIONS: Final = 256
"""Most connections at a time: a further one gets an error and is closed."""
MAX_PATH_BYTES: Final = 107
"""Longest path that Linux takes for a Unix socket."""


class ControlError(KafkaQuotasError):
    """Error for a control socket that can't be used."""


def no_daemon(path: Path | str, error: OSError) -> ControlError:
    """Return the error for a control socket on which no daemon answers."""
    return ControlError(
        f"no daemon answers on {path}: {error.strerror or error}", hint="start one with kafka-quotas daemon run"
    )


def check_folder(folder: Path) -> None:
    """Check that only this user and root can replace what is in a folder.

    The folder and those above have to be this user's or root's. A folder that others may write to passes where it is
    sticky, as `/tmp` is.

    Raises:
        ControlError: Another user owns one of the folders, or could rename what is in it.
        OSError: A folder is missing or can't be looked at.
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


class ControlServer:
    """The Unix socket of a daemon and its connections, from `start` to `close`."""

    def __init__(self, path: Path, handler: ControlHandler, *, access: ControlAccess | None = None) -> None:
        self.path = path
        self._inode: int | None = None
        self._handler = handler
        self._access = access or ControlAccess()
        self._server: asyncio.Server | None = None
        self._connections: set[ControlConnection] = set()

    async def start(self, *, replaces: bool = False) -> None:
        """Serve the socket.

        Args:
            replaces: Whether to put the socket in the place of one that answers, so that the path always has one.

        Raises:
            UsageError: The path can't be one of a socket.
            ControlError: The socket can't be made, is another daemon's, or is in a folder that others can change.
        """
        if len(os.fsencode(self.path)) > MAX_PATH_BYTES:
            raise UsageError(f"too long for a socket: {self.path}", hint="choose a shorter path with --control")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            check_folder(self.path.parent)
            if self.path.is_socket() and not replaces:
                self._take_over()
            sock = self._bound_in_place() if replaces else self._bound(self.path)
            self._inode = self.path.stat().st_ino
            self._server = await asyncio.get_running_loop().create_unix_server(self._accept, sock=sock)
        except OSError as error:
            raise ControlError(
                f"can't make the control socket {self.path}: {error.strerror or error}",
                hint="choose another path with --control",
            ) from error

    async def close(self) -> None:
        """Close the socket and its connections, and remove its file."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.close()
            with contextlib.suppress(OSError):
                if self.is_in_place:
                    self.path.unlink()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()

    @property
    def is_in_place(self) -> bool:
        """Whether the path leads to this socket, and not to a successor's."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def _bound_in_place(self) -> socket.socket:
        """Return a listening socket that was moved to the path, so that at no time there is none."""
        new = self.path.with_name(f".{os.getpid()}.new")
        sock = self._bound(new)
        sock.listen()
        new.rename(self.path)
        return sock

    def _bound(self, path: Path) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The umask gives the file its mode at once, so no other user can open it before a `chmod`.
        before = os.umask(0o777 & ~self._access.mode)
        try:
            sock.bind(str(path))
        except BaseException:
            sock.close()
            raise
        finally:
            os.umask(before)
        return sock

    def _accept(self) -> ControlConnection:
        connection = ControlConnection(
            self._handler,
            owner=os.geteuid(),
            allowed=self._access.users,
            is_surplus=len(self._connections) >= MAX_CONNECTIONS,
            on_end=self._connections.discard,
        )
        self._connections.add(connection)
        return connection

    def _take_over(self) -> None:
        """Remove the socket file of a daemon that is gone."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                self.path.unlink()
                return
        raise ControlError(
            f"another daemon answers on {self.path}", hint="stop it, or choose another path with --control"
        )
