"""The watch of a store: a thread that waits for changes and hands the differences to the event loop.

A store returns its whole content after any change. The event loop gets only the differences from the last one, so a
change of one limit costs it one limit, however many others there are.

Invariants: only the thread opens, reads and closes the store; its last content stays in force while it can't be
reached; the log reports an error once, and once more when it is over. No exception ends the thread, neither one of the
store nor one of the use of its content. No reload waits for the store for longer than `REREAD_S`. The differences are
from the content with the revision `since`; a receiver with another revision in force takes all entries instead, so it
loses nothing when a content could not be used.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError, StoreUnreachableError
from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.enforcement.quotas.quota_registry import NO_QUOTAS, Quotas, quotas_of
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify, error_text
from kafka_quotas.stores.store import NEVER_WRITTEN, QuotaEntry, Snapshot, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSnapshot(Snapshot):
    """A store's content, and its differences from the content of an earlier revision."""

    since: str | None
    changed: Mapping[Entity, Quotas]
    """Changed entity -> its limits, none for a removed entity."""
    other_entries: tuple[QuotaEntry, ...]
    """All entries without a user and client-id: addresses, topics, brokers."""


class ChangeTracker:
    """The last content of a store, kept while the store is closed and opened again."""

    def __init__(self) -> None:
        self._revision: str | None = None
        self._before: dict[Entity, Mapping[str, float]] = {}

    def changed(self, snapshot: Snapshot) -> ChangedSnapshot:
        """Compare a content with the last one, and return it with the differences."""
        before, other_entries = self._before, []
        now: dict[Entity, Mapping[str, float]] = {}
        changed: dict[Entity, Quotas] = {}
        for entry in snapshot.entries:
            entity = entry.entity
            if entity.user is ABSENT and entity.client_id is ABSENT:
                other_entries.append(entry)
                continue
            now[entity] = entry.quotas
            if before.get(entity) != entry.quotas:
                changed[entity] = quotas_of(entry)
        changed.update((entity, NO_QUOTAS) for entity in before.keys() - now.keys())
        since, self._revision, self._before = self._revision, snapshot.revision, now
        return ChangedSnapshot(
            revision=snapshot.revision,
            entries=snapshot.entries,
            groups=snapshot.groups,
            since=since,
            changed=changed,
            other_entries=tuple(other_entries),
        )


LOOK_S: Final = 0.5
"""Interval between reads of the store. Each one takes the interpreter away from the event loop a few times."""
FIRST_WAIT_S: Final = 30.0
FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 10.0
JOIN_S: Final = 10.0
REREAD_S: Final = 20.0
"""Longest wait of a reload for the store, shorter than its client waits for the response."""

T = TypeVar("T")

OpenStore: TypeAlias = Callable[[], Store]


@dataclass(slots=True, kw_only=True)
class StoreState:
    """The state of the watched store."""

    url: str
    revision: str
    confirmed_ms: int
    """Time when the store last confirmed that content."""
    trouble: str | None = None
    """The error that keeps it from being read, None without one."""


class StoreWatcher:
    """The thread that watches a store, and the event loop's side of it, which calls `on_snapshot`."""

    def __init__(
        self,
        open_store: OpenStore,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: Counters,
        notify: Notify,
        on_snapshot: Callable[[ChangedSnapshot], None],
    ) -> None:
        self._open_store = open_store
        self._loop = loop
        self._clock = clock
        self._counters = counters
        self._notify = notify
        self._on_snapshot = on_snapshot
        self._tracker = ChangeTracker()
        self._store: Store | None = None
        self._was_written = False
        self._is_stopping = False
        self._woken = threading.Event()
        self._reread_asked = 0
        self._is_unused = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._first: Future[ChangedSnapshot] = Future()
        self._thread = threading.Thread(target=self._run, name="store-follower", daemon=True)
        self.state = StoreState(url="", revision="", confirmed_ms=clock.now_ms())
        """State of the store, written in the event loop's thread except for the first content."""

    def start(self) -> ChangedSnapshot:
        """Start the watch, and return the store's first content, or raise whatever keeps it from being read."""
        self._thread.start()
        try:
            return self._first.result()
        except BaseException:
            self.stop()
            raise

    async def reread(self) -> None:
        """Open the store again and apply its content, or leave the error in `state.trouble` in time."""
        self._reread_asked += 1
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((self._reread_asked, done))
        self._woken.set()
        try:
            async with asyncio.timeout(REREAD_S):
                await done
        except TimeoutError:
            self._lost(StoreUnreachableError(f"it did not answer within {REREAD_S:g} s"), self._reread_asked)

    def stop(self) -> None:
        """Stop the thread, which closes the store, and wait up to `JOIN_S` for its end."""
        self._is_stopping = True
        self._woken.set()
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            store = self._store = self._open_store()
            content = store.watch(None, timeout_s=FIRST_WAIT_S)
            if content is None:
                raise KafkaQuotasError(f"the store said nothing within {FIRST_WAIT_S:g} s: {store.url}")  # noqa: TRY301 - `start` raises it
            first = self._tracker.changed(content)
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            self._close_store()
            self._first.set_exception(error)
            return
        self.state = StoreState(url=store.url, revision=first.revision, confirmed_ms=self._clock.now_ms())
        self._was_written = first.revision != NEVER_WRITTEN
        self._first.set_result(first)
        try:
            self._follow(first.revision)
        finally:
            self._close_store()

    def _follow(self, since: str | None) -> None:
        retry_s = FIRST_RETRY_S
        reread = 0
        while True:
            self._woken.clear()
            if self._is_stopping:
                return
            try:
                if reread != self._reread_asked:
                    reread = self._reread_asked
                    self._close_store()
                    since = None
                found = self._read_store(None if self._is_unused else since)
                # Compared here, where no client waits for it, however many limits there are.
                snapshot = None if found is None else self._tracker.changed(found)
            except Exception as error:  # noqa: BLE001 - no exception may end the thread
                self._call_in_loop(self._lost, error, reread)
                self._close_store()
                self._woken.wait(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
                continue
            since = snapshot.revision if snapshot is not None else since
            self._call_in_loop(self._confirmed, snapshot, reread)
            self._woken.wait(retry_s if self._is_unused else LOOK_S)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S) if self._is_unused else FIRST_RETRY_S

    def _read_store(self, since: str | None) -> Snapshot | None:
        if self._store is None:
            self._store = self._open_store()
        snapshot = self._store.watch(since, timeout_s=0)
        if snapshot is not None:
            # A store that had content and now has none is lost, not empty.
            if self._was_written and snapshot.revision == NEVER_WRITTEN:
                raise StoreUnreachableError(
                    "the store is gone", hint="put it back; until then its last content stays in force"
                )
            self._was_written = snapshot.revision != NEVER_WRITTEN
        return snapshot

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):  # the store is dropped in any case
                store.close()

    def _call_in_loop(self, receive: Callable[[T, int], None], what: T, reread: int) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(receive, what, reread)

    def _confirmed(self, snapshot: ChangedSnapshot | None, reread: int) -> None:
        state = self.state
        if snapshot is None and self._is_unused:
            return  # the last content could not be used, and the thread reads it once more
        if snapshot is not None:
            try:
                self._on_snapshot(snapshot)
            except Exception as error:  # noqa: BLE001 - a defect, or unforeseen content
                self._is_unused = True
                self._lost(error, reread)
                return
            self._is_unused = False
            self._counters.store_updates += 1
            state.revision = snapshot.revision
        state.confirmed_ms = self._clock.now_ms()
        if state.trouble is not None:
            state.trouble = None
            self._notify(LogEvent.of("store is reached again", store=state.url))
        self._end_waiting(reread)

    def _lost(self, error: Exception, reread: int) -> None:
        self._counters.store_failures += 1
        if self.state.trouble is None:
            event = "store can't be read; its last content stays in force"
            self._notify(LogEvent.failure(event, error, store=self.state.url))
        self.state.trouble = error_text(error)
        self._end_waiting(reread)

    def _end_waiting(self, reread: int) -> None:
        for number, done in self._waiting:
            if number <= reread and not done.done():
                done.set_result(None)
        self._waiting = [(number, done) for number, done in self._waiting if number > reread]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The result of a reload."""

    files: tuple[str, ...]
    store: str
    """URL of the store."""
    store_trouble: str | None
    """The error that keeps the store's last content in force, None without one."""
    changed: int
    limits: int
