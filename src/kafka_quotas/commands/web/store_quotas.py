"""What `kafka-quotas ui` shows: a store, with the usage of a daemon or of brokers' metrics.

Both are read in threads, and what was read serves all browsers for a moment. Brokers keep no history, so this process
looks at their metrics every `SAMPLE_S` seconds and remembers who was throttled then.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Final

from kafka_quotas.commands.insight.usage_source import (
    UsageReading,
    UsageSource,
    read_status,
    read_usage,
    usage_of_daemon,
)
from kafka_quotas.commands.quotas.quota_status import resolver_of
from kafka_quotas.commands.web.journal_reader import journal_page
from kafka_quotas.commands.web.live_quotas import JournalPage, LiveReading, LiveStore
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import sanitize
from kafka_quotas.core.model.quota_filter import EVERYTHING
from kafka_quotas.core.resolution.effective import SyntheticNames
from kafka_quotas.core.resolution.usage import is_held_back
from kafka_quotas.enforcement.telemetry.status import DaemonStatus, run_sliced
from kafka_quotas.enforcement.telemetry.throttle_stats import ThrottleHistory
from kafka_quotas.stores.files.journal import Journal
from kafka_quotas.stores.store import Store

USAGE_MS: Final = 1500
"""How long a reading of the usage serves."""
STORE_MS: Final = 4000
"""How long the content of the store serves."""
SAMPLE_S: Final = 5.0

OpenStore = Callable[[str | None], Store]
"""Opens the chosen store, or where none is chosen that of the daemon with this address."""


class StoreQuotas:
    """The provider of the page over a store."""

    def __init__(self, source: UsageSource, open_store: OpenStore, journal: Journal, clock: Clock) -> None:
        self._source = source
        self._open_store = open_store
        self._journal = journal
        self._clock = clock
        self._history = ThrottleHistory()
        self._sampled_from_ms: int | None = None
        self._usage: tuple[int, LiveReading] | None = None
        self._store: tuple[int, LiveStore] | None = None
        self._daemon_store: str | None = None
        self._reading_usage = asyncio.Lock()
        self._reading_store = asyncio.Lock()

    async def usage(self) -> LiveReading:
        """Return the usage now, an empty one with its trouble where it can't be read."""
        async with self._reading_usage:
            if self._usage is None or not 0 <= self._clock.now_ms() - self._usage[0] < USAGE_MS:
                live = await self._read_usage()
                self._usage = (self._clock.now_ms(), live)
            return self._usage[1]

    async def store(self) -> LiveStore:
        """Return the content of the store.

        Raises:
            KafkaQuotasError: It can't be read.
        """
        async with self._reading_store:
            if self._store is None or not 0 <= self._clock.now_ms() - self._store[0] < STORE_MS:
                if self._usage is None:
                    await self.usage()  # which says what store the daemon follows
                found = await asyncio.to_thread(self._read_store, self._daemon_store)
                self._store = (self._clock.now_ms(), found)
            return self._store[1]

    async def journal(self) -> JournalPage:
        """Return the newest changes of the store by this user."""
        store = await self.store()
        return await asyncio.to_thread(journal_page, self._journal, store.url)

    async def sample(self) -> None:
        """Look at brokers' metrics every `SAMPLE_S` seconds until cancelled."""
        while True:
            await self.usage()
            await asyncio.sleep(SAMPLE_S)

    async def _read_usage(self) -> LiveReading:
        now_ms = self._clock.now_ms()
        try:
            reading, status = await asyncio.to_thread(self._read_source)
        except KafkaQuotasError as error:
            return LiveReading(
                at_ms=now_ms,
                reading=UsageReading(origin="nowhere", usages=()),
                status=None,
                last_hour=await run_sliced(self._history.rows(now_ms)),
                sampled_from_ms=self._sampled_from_ms,
                trouble=error,
            )
        self._daemon_store = reading.store_url or self._daemon_store
        if status is None:
            self._remember(reading, now_ms)
        return LiveReading(
            at_ms=now_ms,
            reading=reading,
            status=status,
            last_hour=await run_sliced(self._history.rows(now_ms)) if status is None else status.last_hour,
            sampled_from_ms=self._sampled_from_ms,
        )

    def _read_source(self) -> tuple[UsageReading, DaemonStatus | None]:
        if self._source.metrics_urls:
            return read_usage(self._source), None
        status = read_status(self._source.control)
        return usage_of_daemon(status), status

    def _remember(self, reading: UsageReading, now_ms: int) -> None:
        if self._sampled_from_ms is None:
            self._sampled_from_ms = now_ms
        for usage in reading.usages:
            if usage.throttle_ms and is_held_back(usage, usage.limit or float("inf")):
                bucket = (usage.key, sanitize(usage.user), usage.client_id)
                self._history.add(bucket, round(usage.throttle_ms), now_ms)

    def _read_store(self, daemon_store: str | None) -> LiveStore:
        with closing(self._open_store(daemon_store)) as store:
            entries = tuple(store.describe(EVERYTHING))
            return LiveStore(
                url=store.url,
                entries=entries,
                resolver=resolver_of(entries, static=store.kind.is_static),
                probes=SyntheticNames(entry.entity for entry in entries),
                is_static=store.kind.is_static,
            )
