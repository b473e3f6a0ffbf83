"""What operators reach of a daemon: its control socket, its metrics, and its pages for browsers."""

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.content.quota_content import QuotaContent
from kafka_quotas.enforcement.control.client import control_path, find_control_path
from kafka_quotas.enforcement.control.server import ControlHandler, ControlServer
from kafka_quotas.enforcement.monitoring.daemon_view import DaemonView, Pages, daemon_server
from kafka_quotas.enforcement.monitoring.http_server import HttpServer
from kafka_quotas.enforcement.monitoring.probes import Readiness
from kafka_quotas.enforcement.proxy.inherited_sockets import METRICS, InheritedSockets
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.status import DaemonStatus


class Endpoints:
    """The control socket and the HTTP server of one daemon."""

    def __init__(self, settings: DaemonSettings, content: QuotaContent, pages: Pages, *, notify: Notify) -> None:
        self._settings = settings
        self._content = content
        self._pages = pages
        self._notify = notify
        self._control: ControlServer | None = None
        self._metrics: HttpServer | None = None

    def control_path(self, port: int | None = None) -> Path:
        """Return the path of the control socket.

        Args:
            port: Port of the first listener, None before it is open.

        Raises:
            ControlError, UsageError: It follows from no port, and there is not one daemon that runs.
        """
        if self._settings.control is not None:
            return self._settings.control
        port = self._settings.listeners[0].listen.port if port is None else port
        return control_path(port) if port else find_control_path()

    async def serve_metrics(
        self,
        status: Callable[[], Awaitable[DaemonStatus]],
        figures: Callable[[], Awaitable[DaemonStatus]],
        readiness: Callable[[], Awaitable[Readiness]],
        sockets: InheritedSockets,
    ) -> None:
        """Serve metrics and pages where they are wanted.

        Args:
            status: Returns the status, for pages.
            figures: Returns the status that metrics are made of.
            readiness: Returns whether clients should connect.
            sockets: Those of a predecessor.

        Raises:
            ListenError: The address can't be listened on.
        """
        if self._settings.metrics is None:
            return
        view = DaemonView(status=status, entries=self._content.entries, resolver=lambda: self._content.resolver)
        metrics = daemon_server(self._settings.metrics, figures, readiness, self._pages(view), notify=self._notify)
        await metrics.start(sockets)
        self._metrics = metrics

    async def serve_control(self, handler: ControlHandler, port: int, *, replaces: bool) -> None:
        """Serve the control socket.

        Args:
            handler: Answers the requests.
            port: Port of the first listener.
            replaces: Whether to put it in the place of a predecessor's.

        Raises:
            UsageError: The path can't be one of a socket.
            ControlError: The socket can't be made, is another daemon's, or is in a folder that others can change.
        """
        control = ControlServer(self.control_path(port), handler, access=self._settings.control_access)
        await control.start(replaces=replaces)
        self._control = control

    async def reclaim_control(self) -> None:
        """Put the control socket back in its place where a successor that gave up had put its own."""
        if self._control is None or self._control.is_in_place:
            return
        await self._control.close()
        try:
            await self._control.start()
        except KafkaQuotasError as error:
            self._notify(LogEvent.failure("the control socket is lost", error))

    def sockets(self) -> dict[str, socket.socket]:
        """Return the listening sockets that a successor takes, by their roles."""
        sock = None if self._metrics is None else self._metrics.socket
        return {} if sock is None else {METRICS: sock}

    def fields(self) -> dict[str, str | float]:
        """Return the addresses, for the log."""
        fields: dict[str, str | float] = {}
        if self._control is not None:
            fields["control"] = str(self._control.path)
        sock = None if self._metrics is None else self._metrics.socket
        if sock is not None and self._settings.metrics is not None:
            address = Address(host=self._settings.metrics.host, port=sock.getsockname()[1])
            fields["metrics"] = f"http://{address}/metrics"
        return fields

    async def close(self) -> None:
        """Close both."""
        if self._control is not None:
            await self._control.close()
        if self._metrics is not None:
            await self._metrics.close()
