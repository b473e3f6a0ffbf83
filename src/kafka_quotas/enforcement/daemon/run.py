"""The process of a daemon: its event loop, its garbage collector, and how it ended."""

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Final, TextIO

from kafka_quotas.enforcement.config.settings import DaemonSettings
from kafka_quotas.enforcement.daemon.daemon import Daemon, DaemonResult
from kafka_quotas.enforcement.monitoring.daemon_view import Pages
from kafka_quotas.enforcement.quotas.store_watcher import OpenStore
from kafka_quotas.enforcement.sharing.worker import main

GC_THRESHOLD: Final = 50_000
"""Objects made before the collector looks at them: its default of 700 is reached within a few hundred requests."""
# With the default of 5 ms the threads of store and event log cost more than they do: until one of them gets the
# interpreter, every wait of the event loop costs a wake-up.
SWITCH_S: Final = 0.0005
"""Longest time that a thread waits for the interpreter."""


def run_daemon(
    settings: DaemonSettings, open_store: OpenStore, *, log: TextIO, pages: Pages = lambda _: {}
) -> DaemonResult:
    """Run a daemon until a signal ends it, and return how it ended.

    Raises:
        KafkaQuotasError: Store, quotas, an address, the control socket or prometheus-client is not available.
    """

    async def daemon() -> DaemonResult:
        return await Daemon(settings, open_store, log, pages=pages, on_started=_make_collections_rare).run()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(daemon())


def run_worker() -> None:
    """Run a worker of the daemon that started this process."""
    main(_loop_factory(), _make_collections_rare)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops if it is installed, None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _make_collections_rare() -> None:
    """Freeze all objects of the start and make garbage collections rare, because requests make no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_S)
