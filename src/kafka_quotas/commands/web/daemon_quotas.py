"""What the daemon shows on its own page, in its own event loop."""

import asyncio

from kafka_quotas.commands.insight.usage_source import usage_of_daemon
from kafka_quotas.commands.web.journal_reader import journal_page
from kafka_quotas.commands.web.live_quotas import JournalPage, LiveReading, LiveStore
from kafka_quotas.commands.web.quota_page import quota_routes
from kafka_quotas.commands.web.store_quotas import USAGE_MS
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.resolution.effective import SyntheticNames
from kafka_quotas.enforcement.monitoring.daemon_view import DaemonView, Pages
from kafka_quotas.enforcement.proxy.quota_content import STATIC_SCHEME
from kafka_quotas.stores.files.journal import Journal


class DaemonQuotas:
    """The provider of the page of one daemon."""

    def __init__(self, view: DaemonView, journal: Journal, clock: Clock) -> None:
        self._view = view
        self._journal = journal
        self._clock = clock
        self._usage: LiveReading | None = None
        self._reading = asyncio.Lock()

    async def usage(self) -> LiveReading:
        """Return the usage now, the same for all browsers that ask within a moment."""
        async with self._reading:
            now_ms = self._clock.now_ms()
            if self._usage is None or not 0 <= now_ms - self._usage.at_ms < USAGE_MS:
                status = await self._view.status()
                self._usage = LiveReading(
                    at_ms=now_ms,
                    reading=usage_of_daemon(status),
                    status=status,
                    last_hour=status.last_hour,
                    sampled_from_ms=None,
                )
            return self._usage

    async def store(self) -> LiveStore:
        """Return the quotas in force now."""
        url = await self._url()
        return LiveStore(
            url=url,
            entries=tuple(self._view.entries()),
            resolver=self._view.resolver(),
            # Names of clients are not looked through at every poll: there may be 100,000, and none is called so.
            probes=SyntheticNames(()),
            is_static=url.startswith(STATIC_SCHEME),
        )

    async def journal(self) -> JournalPage:
        """Return the newest changes of the store by the user of the daemon."""
        return await asyncio.to_thread(journal_page, self._journal, await self._url())

    async def _url(self) -> str:
        status = (self._usage or await self.usage()).status
        assert status is not None
        return status.store.url


def daemon_pages(journal: Journal, clock: Clock) -> Pages:
    """Return the function that makes the pages of a daemon."""
    return lambda view: quota_routes(DaemonQuotas(view, journal, clock))
