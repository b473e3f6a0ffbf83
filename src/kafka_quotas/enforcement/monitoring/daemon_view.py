"""The HTTP server of a daemon: metrics, probes, and pages made of a view of the daemon."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring.http_server import HttpRoutes, HttpServer
from kafka_quotas.enforcement.monitoring.metrics import exposition
from kafka_quotas.enforcement.monitoring.probes import probe_routes
from kafka_quotas.enforcement.monitoring.status_reporter import Reporter
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.status import DaemonStatus
from kafka_quotas.stores.store import QuotaEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """A running daemon, for pages in its own event loop."""

    status: Callable[[], Generator[None, None, DaemonStatus]]
    """Returns the status, one slice of the work at a time."""
    entries: Callable[[], list[QuotaEntry]]
    """Returns the quotas in force, those of a static file and of the policy file too."""
    resolver: Callable[[], EffectiveQuotas]
    """Returns the resolution, for clients the one by which the daemon itself finds limits, so that both agree."""


Pages: TypeAlias = Callable[[DaemonView], HttpRoutes]
"""Makes the pages of a daemon, once, when it starts."""


def daemon_server(address: Address, reporter: Reporter, pages: HttpRoutes, *, notify: Notify) -> HttpServer:
    """Return the server of a daemon's metrics, probes and pages, which is yet to be started.

    Raises:
        UsageError: prometheus-client is not installed.
    """
    return HttpServer(
        address,
        routes=probe_routes(exposition(reporter.figures), reporter.readiness),
        pages=pages,
        on_defect=lambda error: notify(LogEvent.failure("a page could not be made", error)),
    )
