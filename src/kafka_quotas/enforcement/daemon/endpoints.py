"""What operators see of a daemon and do to it, its workers included, and the endpoints for that."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.control.client import control_path
from kafka_quotas.enforcement.control.server import ControlHandler, ControlServer
from kafka_quotas.enforcement.monitoring.daemon_view import DaemonView, Pages, Readiness, daemon_server
from kafka_quotas.enforcement.monitoring.http_server import HttpServer
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.proxy.quota_content import QuotaContent
from kafka_quotas.enforcement.proxy.unmuting import ClientChoice, Unmuted
from kafka_quotas.enforcement.quotas.reload import Reloaded, Reloader
from kafka_quotas.enforcement.sharing.pool import WorkerPool, merged
from kafka_quotas.enforcement.sharing.state import StateSnapshotter
from kafka_quotas.enforcement.telemetry.log import Notify
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced


class Endpoints:
    """The control socket and the HTTP server of one daemon."""

    def __init__(self, settings: DaemonSettings, content: QuotaContent, pages: Pages, *, notify: Notify) -> None:
        self._settings = settings
        self._content = content
        self._pages = pages
        self._notify = notify
        self._control: ControlServer | None = None
        self._metrics: HttpServer | None = None

    async def serve_metrics(
        self,
        status: Callable[[], Awaitable[DaemonStatus]],
        figures: Callable[[], Awaitable[DaemonStatus]],
        readiness: Callable[[], Awaitable[Readiness]],
    ) -> None:
        """Serve metrics and pages if they are wanted.

        Args:
            status: Returns the status, for pages.
            figures: Returns the status that metrics are made of.
            readiness: Returns whether clients should connect.

        Raises:
            ListenError: The address can't be listened on.
        """
        if self._settings.metrics is None:
            return
        view = DaemonView(status=status, entries=self._content.entries, resolver=lambda: self._content.resolver)
        metrics = daemon_server(self._settings.metrics, figures, readiness, self._pages(view), notify=self._notify)
        await metrics.start()
        self._metrics = metrics

    async def serve_control(self, handler: ControlHandler, port: int) -> None:
        """Serve the control socket.

        Args:
            handler: Answers the requests.
            port: Port of the first listener.

        Raises:
            UsageError: The path can't be one of a socket.
            ControlError: The socket can't be made, is another daemon's, or is in a folder that others can change.
        """
        path = self._settings.control or control_path(port)
        control = ControlServer(path, handler, access=self._settings.control_access)
        await control.start()
        self._control = control

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


class OperatorView:
    """The status of a daemon, its reload, and the end of throttle times.

    Args:
        workers: The processes that serve connections, None if this one does.
        snapshotter: The keeper of the state file, None without one.
    """

    def __init__(
        self,
        reporter: Reporter,
        reloader: Reloader,
        proxy: ProxyServer,
        workers: WorkerPool | None,
        snapshotter: StateSnapshotter | None,
    ) -> None:
        self._reporter = reporter
        self._reloader = reloader
        self._proxy = proxy
        self._workers = workers
        self._snapshotter = snapshotter

    async def status(self) -> DaemonStatus:
        """Return the status with as many rows as there may be."""
        return await self._merged(await run_sliced(self._reporter.status()), "status")

    async def figures(self) -> DaemonStatus:
        """Return the part of the status that metrics need."""
        return await self._merged(await run_sliced(self._reporter.figures()), "figures")

    async def reload(self, asked_by: str) -> Reloaded:
        """Read the files and the store again, here and then in all workers.

        Raises:
            KafkaQuotasError: A file can't be used.
        """
        result = await self._reloader.reload(asked_by)
        for answer in await self._answers("reload"):
            if isinstance(answer, KafkaQuotasError):
                raise answer
        return result

    async def unmute(self, choice: ClientChoice) -> Unmuted:
        """End the throttle times of these clients and return which clients those were."""
        answers = [each for each in await self._answers("unmute", choice) if isinstance(each, Unmuted)]
        return Unmuted(unmuted=tuple(row for each in (self._proxy.unmute(choice), *answers) for row in each.unmuted))

    async def _merged(self, parent: DaemonStatus, question: str) -> DaemonStatus:
        if self._snapshotter is not None:
            parent = replace(parent, state_age_ms=self._snapshotter.age_ms())
        if self._workers is None:
            return parent
        answers = [each for each in await self._answers(question) if isinstance(each, DaemonStatus)]
        return merged(parent, answers, self._workers.rows(), self._workers.ended)

    async def _answers(self, question: str, *arguments: object) -> list[object]:
        return [] if self._workers is None else await self._workers.ask(question, *arguments)
