"""What operators see of a daemon and do to it, its workers included."""

from dataclasses import replace

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.proxy.proxy_server import ProxyServer
from kafka_quotas.enforcement.quotas.reload import Reloaded, Reloader
from kafka_quotas.enforcement.session.unmute import ClientChoice, Unmuted
from kafka_quotas.enforcement.state.snapshotter import StateSnapshotter
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced
from kafka_quotas.enforcement.workers.merged_status import merged
from kafka_quotas.enforcement.workers.pool import WorkerPool
from kafka_quotas.enforcement.workers.protocol import WorkerReport


class OperatorView:
    """The status of a daemon, its reload, and the end of throttle times.

    Args:
        workers: The processes that serve connections, None where this one does.
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
        return await self._merged(await run_sliced(self._reporter.status()), WorkerReport.STATUS)

    async def figures(self) -> DaemonStatus:
        """Return the part of the status that metrics need."""
        return await self._merged(await run_sliced(self._reporter.figures()), WorkerReport.FIGURES)

    async def reload(self, asked_by: str) -> Reloaded:
        """Read the files and the store again, here and then in all workers.

        Raises:
            KafkaQuotasError: A file can't be used.
        """
        result = await self._reloader.reload(asked_by)
        for answer in await self._answers(WorkerReport.RELOAD):
            if isinstance(answer, KafkaQuotasError):
                raise answer
        return result

    async def unmute(self, choice: ClientChoice) -> Unmuted:
        """End the throttle times of these clients and return which clients those were."""
        answers = [each for each in await self._answers(choice) if isinstance(each, Unmuted)]
        return Unmuted(unmuted=tuple(row for each in (self._proxy.unmute(choice), *answers) for row in each.unmuted))

    async def _merged(self, parent: DaemonStatus, of: WorkerReport) -> DaemonStatus:
        if self._snapshotter is not None:
            parent = replace(parent, state_age_ms=self._snapshotter.age_ms())
        if self._workers is None:
            return parent
        answers = [each for each in await self._answers(of) if isinstance(each, DaemonStatus)]
        return merged(parent, answers, self._workers.rows(), self._workers.ended)

    async def _answers(self, of: WorkerReport | ClientChoice) -> list[object]:
        return [] if self._workers is None else await self._workers.ask(of)
