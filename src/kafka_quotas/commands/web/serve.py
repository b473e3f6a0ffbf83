"""The server of `kafka-quotas ui`, until a signal ends it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

from kafka_quotas.commands.insight.usage_source import UsageSource
from kafka_quotas.commands.web.quota_page import quota_routes
from kafka_quotas.commands.web.store_quotas import OpenStore, StoreQuotas
from kafka_quotas.core.clock import Clock
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.enforcement.monitoring.http_server import HttpServer
from kafka_quotas.stores.files.journal import Journal


def serve_quotas(
    address: Address,
    *,
    source: UsageSource,
    open_store: OpenStore,
    journal: Journal,
    clock: Clock,
    serving: Callable[[Address], None],
    on_defect: Callable[[Exception], None],
) -> None:
    """Serve the page of quotas until SIGTERM or Ctrl-C.

    Args:
        address: Where the page is.
        source: Where rates and throttle times come from.
        open_store: Opens the store of the quotas.
        journal: The journal of changes.
        clock: The time of day.
        serving: Takes the address once the page can be opened.
        on_defect: Takes an exception that no request should end in.

    Raises:
        ListenError: The address can't be listened on.
        KeyboardInterrupt: Ctrl-C.
    """

    async def serve() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        live = StoreQuotas(source, open_store, journal, clock)
        server = HttpServer(address, pages=quota_routes(live), on_defect=on_defect)
        async with contextlib.AsyncExitStack() as stack:
            port = await server.start()
            stack.push_async_callback(server.close)
            if source.metrics_urls:
                stack.callback(asyncio.create_task(live.sample()).cancel)
            serving(Address(host=address.host, port=port))
            await stop.wait()

    asyncio.run(serve())
