"""The watch of a store: a thread that waits for changes and hands each one to the event loop.

Invariants: only the thread opens, reads and closes the store; its last content stays in force while it can't be
reached; the log reports an error once, and once more when it is over. No exception ends the thread, neither one of the
store nor one of the use of its content. No reload waits for the store for longer than `REREAD_S`.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError, StoreUnreachableError
from kafka_quotas.enforcement.quotas.store_changes import ChangedSnapshot, ChangeTracker
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify, error_text
from kafka_quotas.stores.store import NEVER_WRITTEN, Snapshot, Store

LOOK_S: Final = 0.5
"""Interval between reads of the store. Each one takes the interpreter away from the event loop a few times."""
FIRST_WAIT_S: Final = 30.0
"""Longest wait for the first content."""
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
    """Revision of the content in force."""
    confirmed_ms: int
    """Time when the store last confirmed that content."""
    trouble: str | None = None
    """The error that keeps it from being read, None without one."""


class StoreWatcher:
    """The thread that watches a store, and the event loop's side of it, where it calls `on_snapshot`."""

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
        """Start the watch, and return the store's first content.

        Raises:
            KafkaQuotasError: The store can't be opened or read, so there are no quotas to enforce. Any other exception
                of the store passes as well.
        """
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
        """Follow the store, in the thread of the watcher, as `_follow` does."""
        try:
            store = self._open_store()
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            self._first.set_exception(error)
            return
        with contextlib.closing(_Reopening(store, self._open_store)) as reopening:
            try:
                first = self._tracker.changed(_first_content(store))
            except BaseException as error:  # noqa: BLE001 - `start` raises it
                self._first.set_exception(error)
                return
            self.state = StoreState(url=store.url, revision=first.revision, confirmed_ms=self._clock.now_ms())
            self._first.set_result(first)
            reopening.was_written = first.revision != NEVER_WRITTEN
            self._follow(reopening, first.revision)

    def _follow(self, store: "_Reopening", since: str | None) -> None:
        retry_s = FIRST_RETRY_S
        reread = 0
        while True:
            self._woken.clear()
            if self._is_stopping:
                return
            try:
                if reread != self._reread_asked:
                    reread = self._reread_asked
                    store.close()
                    since = None
                found = store.watch(None if self._is_unused else since)
                # Compared here, where no client waits for it, however many limits there are.
                snapshot = None if found is None else self._tracker.changed(found)
            except Exception as error:  # noqa: BLE001 - no exception may end the thread
                self._call_in_loop(self._lost, error, reread)
                store.close()
                self._woken.wait(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
                continue
            since = snapshot.revision if snapshot is not None else since
            self._call_in_loop(self._confirmed, snapshot, reread)
            self._woken.wait(retry_s if self._is_unused else LOOK_S)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S) if self._is_unused else FIRST_RETRY_S

    def _call_in_loop(self, receive: Callable[[T, int], None], what: T, reread: int) -> None:
        """Make the event loop call `receive`, unless the loop has ended."""
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
            self._notify(LogEvent(event="store is reached again", fields={"store": state.url}))
        self._end_waiting(reread)

    def _lost(self, error: Exception, reread: int) -> None:
        self._counters.store_failures += 1
        if self.state.trouble is None:
            event = "store can't be read; its last content stays in force"
            self._notify(LogEvent.failure(event, error, store=self.state.url))
        self.state.trouble = error_text(error)
        self._end_waiting(reread)

    def _end_waiting(self, reread: int) -> None:
        """End the `reread` calls that wait for this read of the store or an earlier one."""
        for number, done in self._waiting:
            if number <= reread and not done.done():
                done.set_result(None)
        self._waiting = [(number, done) for number, done in self._waiting if number > reread]


class _Reopening:
    """A store that opens again at the first read after `close`."""

    def __init__(self, store: Store, open_store: OpenStore) -> None:
        self._store: Store | None = store
        self._open_store = open_store
        self.was_written = False
        """Whether the store has had any content so far."""

    def watch(self, since: str | None) -> Snapshot | None:
        """Return the content if its revision is not `since`, else None.

        Raises:
            StoreUnreachableError: The store had content and now has none: it is lost, not empty.
        """
        if self._store is None:
            self._store = self._open_store()
        snapshot = self._store.watch(since, timeout_s=0)
        if snapshot is not None:
            is_written = snapshot.revision != NEVER_WRITTEN
            if self.was_written and not is_written:
                raise StoreUnreachableError(
                    "the store is gone", hint="put it back; until then its last content stays in force"
                )
            self.was_written = is_written
        return snapshot

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):  # the store is dropped in any case
                store.close()


def _first_content(store: Store) -> Snapshot:
    first = store.watch(None, timeout_s=FIRST_WAIT_S)
    if first is None:
        raise KafkaQuotasError(f"the store said nothing within {FIRST_WAIT_S:g} s: {store.url}")
    return first
