"""The HTTP server of a daemon: `/metrics`, `/healthz`, `/readyz`, and pages made of a view of the daemon.

Alive is a daemon that answers at all. Ready is one that takes connections and reaches any broker; a store that is lost
makes it no less ready, for its last content stays in force.
"""

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from kafka_quotas.core.resolution.effective import EffectiveQuotas
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring.http_server import (
    JSON,
    TEXT,
    HttpHandler,
    HttpReply,
    HttpRoutes,
    HttpServer,
    Query,
)
from kafka_quotas.enforcement.monitoring.metrics import exposition
from kafka_quotas.enforcement.proxy.brokers import UpstreamHealth
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, StoreRow, run_sliced
from kafka_quotas.stores.store import QuotaEntry

_METRICS: Final = "text/plain; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The answer to a readiness probe: whether clients should connect, and why not."""

    ready: bool
    draining: bool
    upstream_reachable: bool
    store_trouble: str | None
    """Error of the last access to the store, None without one."""
    store_age_ms: int
    """Time since the store's content was last confirmed."""


async def readiness(
    upstreams: Iterable[Address], health: UpstreamHealth, store: StoreRow, *, draining: bool
) -> Readiness:
    """Return the readiness of a daemon, for which brokers are tried unless it is draining."""
    reachable = not draining and await health.first_answering(upstreams) is not None
    return Readiness(
        ready=reachable,
        draining=draining,
        upstream_reachable=reachable,
        store_trouble=store.trouble,
        store_age_ms=store.age_ms,
    )


def probe_routes(
    exposition: Callable[[], Awaitable[bytes]],
    readiness: Callable[[], Awaitable[Readiness]] | None = None,
) -> dict[str, HttpHandler]:
    """Return the paths of metrics and health, without `/readyz` in a process that is not a daemon."""

    async def metrics(_: Query) -> HttpReply:
        return HttpReply(body=await exposition(), content_type=_METRICS)

    async def healthz(_: Query) -> HttpReply:
        return HttpReply(body=b"alive\n", content_type=TEXT)

    routes: dict[str, HttpHandler] = {"/metrics": metrics, "/healthz": healthz}
    if readiness is None:
        return routes

    async def readyz(_: Query) -> HttpReply:
        found = await readiness()
        status = "200 OK" if found.ready else "503 Service Unavailable"
        return HttpReply(body=json.dumps(asdict(found)).encode() + b"\n", content_type=JSON, status=status)

    return {**routes, "/readyz": readyz}


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
