"""The successor's part in an upgrade: it takes the sockets and the state of the daemon that runs.

Everything up to `serving` is waited for in one go, for nobody is served meanwhile: `docs/how-to/daemon.md`.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, ProtocolError
from kafka_quotas.enforcement.control.server import UPGRADE_REQUEST, no_daemon
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.proxy.sockets import InheritedSockets
from kafka_quotas.enforcement.state.measured_state import MeasuredState
from kafka_quotas.enforcement.state.state_file import StateError, parse_state
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.upgrade.handover import receive_later
from kafka_quotas.enforcement.upgrade.messages import SERVING, STATE, packed, receive, receive_offer, receive_sockets

ANSWER_S: Final = 30.0
"""Longest time to wait for each message of the predecessor."""


class Takeover:
    """The place of a running daemon, as its successor takes it."""

    def __init__(self, control: Path) -> None:
        """Request the sockets of the daemon on a control socket, which still serves.

        Raises:
            ControlError: No daemon answers.
            RefusedError: The daemon does not let this process take its place.
            ProtocolError: What answers can't be understood.
        """
        self._path = control
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_S)
        try:
            self._socket.connect(str(control))
            self._socket.sendall(UPGRADE_REQUEST)
            self.offer = receive_offer(self._socket)
            sockets = receive_sockets(self._socket, len(self.offer.roles))
        except OSError as error:
            self._socket.close()
            raise no_daemon(control, error) from error
        except BaseException:
            self._socket.close()
            raise
        self.sockets = InheritedSockets(dict(zip(self.offer.roles, sockets, strict=True)))

    def meet_brokers(self, proxy: ProxyServer) -> None:
        """Open the listeners of the brokers that the predecessor has met."""
        proxy.served = self.offer.served
        for listener in proxy.listeners:
            for route in self.offer.routes:
                if route.listener == listener.settings.name:
                    listener.meet(route.node_id, route.upstream, is_bootstrap=route.is_bootstrap)

    def restore(self, measured: MeasuredState, notify: Notify) -> None:
        """Have the predecessor stop accepting, and take up all that it has measured.

        What can't be taken up is logged: then every bucket starts empty.

        Raises:
            ProtocolError: The predecessor has ended, or sends something else.
        """
        source = f"the daemon with process id {self.offer.pid}"
        try:
            self._socket.sendall(packed(STATE))
            text = receive(self._socket)
        except OSError as error:
            raise ProtocolError(f"{source} did not hand over its state: {error.strerror or error}") from error
        try:
            measured.restore(parse_state(str(text), source), source, is_of_now=True)
        except StateError as error:
            notify(LogEvent.failure("state can't be restored; every bucket starts empty", error))

    def serving(self) -> None:
        """Have the predecessor drain, and close what it has left unused.

        Raises:
            ProtocolError: The predecessor has ended.
        """
        self.sockets.close()
        try:
            self._socket.sendall(packed(SERVING))
        except OSError as error:
            raise ProtocolError(f"the daemon with process id {self.offer.pid} has ended meanwhile") from error
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library takes it by position

    async def follow(self, record: Callable[[object], object], notify: Notify) -> None:
        """Record what the predecessor charges while it drains, until it has ended."""
        loop = asyncio.get_running_loop()
        fields: dict[str, str | float] = {"pid": self.offer.pid}
        try:
            while True:
                record(await receive_later(loop, self._socket))
        except OSError:
            notify(LogEvent(event="upgrade complete: the old daemon has ended", fields=fields))
        except KafkaQuotasError as error:
            notify(LogEvent.failure("upgrade: the old daemon's charges can't be read", error))
        finally:
            self.close()

    def close(self) -> None:
        """End the connection, and close the sockets that are not used."""
        self.sockets.close()
        with contextlib.suppress(OSError):
            self._socket.close()
