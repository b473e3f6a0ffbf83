"""The page of quotas: over a store, as `kafka-quotas ui` serves it, and as a page of the daemon.

Contract: `/api/overview`, `/api/quotas?text=`, `/api/effective?user=&client_id=` and `/api/changes` answer with JSON
objects, in slices of work, so that a daemon serves its clients in between.

Over a store, quotas and usage are read in threads, and what was read serves all browsers for a moment. Brokers keep no
history, so the process looks at their metrics every `SAMPLE_S` seconds and remembers who was throttled then. The daemon
has both in its own event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import closing
from typing import Final

from kafka_quotas import enforcement
from kafka_quotas.commands.insight.usage import UsageReading, UsageSource, read_status, read_usage, usage_of_daemon
from kafka_quotas.commands.quotas.describe import known_groups
from kafka_quotas.commands.web.asset_files import asset_routes
from kafka_quotas.commands.web.quota_documents import (
    LiveReading,
    LiveStore,
    changes_document,
    effective_document,
    overview,
    quotas_document,
)
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.groups.membership import UNKNOWN_GROUPS, ClientGroups
from kafka_quotas.core.model.entity import EVERYTHING
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuotas, QuotaClient
from kafka_quotas.core.resolution.usage import is_held_back
from kafka_quotas.stores import Journal, Store

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
        self.journal = journal
        self._clock = clock
        self._history = enforcement.ThrottleHistory()
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
        """Return the content of the store."""
        async with self._reading_store:
            if self._store is None or not 0 <= self._clock.now_ms() - self._store[0] < STORE_MS:
                if self._usage is None:
                    await self.usage()  # which says what store the daemon follows
                found = await asyncio.to_thread(self._read_store, self._daemon_store)
                self._store = (self._clock.now_ms(), found)
            return self._store[1]

    async def groups_of(self, client: QuotaClient) -> ClientGroups:
        """Return the groups around a client, unknown ones unless a daemon that knows groups is asked."""
        if not self._source.metrics_urls:
            with contextlib.suppress(KafkaQuotasError):
                return await asyncio.to_thread(enforcement.ask_groups, self._source.control, client)
        return UNKNOWN_GROUPS

    async def store_url(self) -> str:
        """Return the address of the store."""
        return (await self.store()).url

    async def _read_usage(self) -> LiveReading:
        now_ms = self._clock.now_ms()
        reading, status, trouble = UsageReading(origin="nowhere", usages=()), None, None
        try:
            reading, status = await asyncio.to_thread(self._read_source)
        except KafkaQuotasError as error:
            trouble = error
        self._daemon_store = reading.store_url or self._daemon_store
        if status is None and trouble is None:
            self._remember(reading, now_ms)
        return LiveReading(
            at_ms=now_ms,
            reading=reading,
            status=status,
            last_hour=await enforcement.run_sliced(self._history.rows(now_ms)) if status is None else status.last_hour,
            sampled_from_ms=self._sampled_from_ms,
            trouble=trouble,
        )

    def _read_source(self) -> tuple[UsageReading, enforcement.DaemonStatus | None]:
        if self._source.metrics_urls:
            return read_usage(self._source), None
        status = read_status(self._source.control)
        return usage_of_daemon(status), status

    def _remember(self, reading: UsageReading, now_ms: int) -> None:
        if self._sampled_from_ms is None:
            self._sampled_from_ms = now_ms
        for usage in reading.usages:
            if usage.throttle_ms and is_held_back(usage, usage.limit or float("inf")):
                bucket = (usage.key, *usage.tags)
                self._history.add(bucket, round(usage.throttle_ms), now_ms)

    def _read_store(self, daemon_store: str | None) -> LiveStore:
        with closing(self._open_store(daemon_store)) as store:
            entries = tuple(store.describe(EVERYTHING))
            return LiveStore(
                url=store.url,
                entries=entries,
                resolver=EffectiveQuotas(entries, static=store.kind.is_static),
                is_static=store.kind.is_static,
                groups=known_groups(store.groups(), None),
            )


class DaemonQuotas:
    """The provider of the page of one daemon."""

    def __init__(self, view: enforcement.DaemonView, journal: Journal, clock: Clock) -> None:
        self._view = view
        self.journal = journal
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
        url = await self.store_url()
        return LiveStore(
            url=url,
            entries=tuple(self._view.entries()),
            resolver=self._view.resolver(),
            is_static=url.startswith(enforcement.STATIC_SCHEME),
            groups=self._view.groups(),
        )

    async def groups_of(self, client: QuotaClient) -> ClientGroups:
        """Return the groups around a client."""
        return self._view.groups_of(client)

    async def store_url(self) -> str:
        """Return the address of the store."""
        status = (self._usage or await self.usage()).status
        assert status is not None
        return status.store.url


def quota_routes(live: StoreQuotas | DaemonQuotas) -> dict[str, enforcement.HttpHandler]:
    """Return the paths of the page of a store or a daemon. Errors of either pass through."""

    async def answer_overview(_: enforcement.Query) -> enforcement.HttpReply:
        usage = await live.usage()
        return enforcement.json_reply(await enforcement.run_sliced(overview(usage, await live.store())))

    async def answer_quotas(query: enforcement.Query) -> enforcement.HttpReply:
        return enforcement.json_reply(
            await enforcement.run_sliced(quotas_document(await live.store(), query.get("text", "")))
        )

    async def answer_effective(query: enforcement.Query) -> enforcement.HttpReply:
        usage = await live.usage()
        user, client_id = query.get("user", "") or ANONYMOUS, query.get("client_id", "")
        groups = await live.groups_of(QuotaClient(user=user, client_id=client_id))
        return enforcement.json_reply(
            effective_document(await live.store(), usage.reading, groups, user=user, client_id=client_id)
        )

    async def answer_changes(_: enforcement.Query) -> enforcement.HttpReply:
        store_url = await live.store_url()
        return enforcement.json_reply(await asyncio.to_thread(changes_document, live.journal, store_url))

    return {
        **asset_routes("quotas"),
        "/api/overview": answer_overview,
        "/api/quotas": answer_quotas,
        "/api/effective": answer_effective,
        "/api/changes": answer_changes,
    }


def daemon_pages(journal: Journal, clock: Clock) -> enforcement.Pages:
    """Return the function that makes the pages of a daemon."""
    return lambda view: quota_routes(DaemonQuotas(view, journal, clock))


def serve_quotas(
    address: enforcement.Address,
    *,
    source: UsageSource,
    open_store: OpenStore,
    journal: Journal,
    clock: Clock,
    serving: Callable[[enforcement.Address], None],
    on_defect: Callable[[Exception], None],
) -> None:
    """Serve the page of quotas until SIGTERM or Ctrl-C."""
    live = StoreQuotas(source, open_store, journal, clock)
    server = enforcement.HttpServer(address, pages=quota_routes(live), on_defect=on_defect)

    async def sample() -> None:
        try:
            await live.usage()
        except Exception as error:  # noqa: BLE001 - the page outlives a defect of one look
            on_defect(error)

    work = sample if source.metrics_urls else None  # only brokers have no history of their own
    enforcement.serve_until_stopped(server, serving, work, every_s=SAMPLE_S)
