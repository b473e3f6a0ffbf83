"""The HTTP server of a daemon: metrics, probes, and pages made of a view of the daemon."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring.http_server import HttpRoutes, HttpServer
from kafka_quotas.enforcement.monitoring.metrics import exposition
from kafka_quotas.enforcement.monitoring.probes import Readiness, probe_routes
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced
from kafka_quotas.stores.store import QuotaEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """A running daemon, for pages in its own event loop."""

    status: Callable[[], Awaitable[DaemonStatus]]
    """Returns the status, while clients are served."""
    entries: Callable[[], list[QuotaEntry]]
    """Returns the quotas in force, those of a static file and of the policy file too."""
    resolver: Callable[[], EffectiveQuotas]
    """Returns the resolution, for clients the one by which the daemon itself finds limits, so that both agree."""


Pages: TypeAlias = Callable[[DaemonView], HttpRoutes]
"""Makes the pages of a daemon, once, when it starts."""


def daemon_server(
    address: Address,
    figures: Callable[[], Awaitable[DaemonStatus]],
    readiness: Callable[[], Awaitable[Readiness]],
    pages: HttpRoutes,
    *,
    notify: Notify,
) -> HttpServer:
    """Return the server of a daemon's metrics, probes and pages, which is yet to be started."""
    text_of = exposition()

    async def text() -> bytes:
        is_ready = (await readiness()).ready
        return await run_sliced(text_of(await figures(), is_ready=is_ready))

    return HttpServer(
        address,
        routes=probe_routes(text, readiness),
        pages=pages,
        on_defect=lambda error: notify(LogEvent.failure("a page could not be made", error)),
    )
