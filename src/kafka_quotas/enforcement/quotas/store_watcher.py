"""Following a store: a thread that waits for changes and hands each one to the event loop.

Invariants: the store is opened, asked and closed in the thread alone; what it last said stays in force while it can't
be reached; a trouble is said once, and once more when it is over. No exception ends the thread, be it one of a store
that does what no store may do, or of what is done with its content: it is a trouble like any other. Nobody waits for
the store for longer than `REREAD_S`.
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
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel, Notify, defect
from kafka_quotas.stores.store import NEVER_WRITTEN, Snapshot, Store

LOOK_S: Final = 0.5
"""How often a change is looked for. Each look takes the interpreter away from the event loop a few times."""
FIRST_WAIT_S: Final = 30.0
"""How long the first content is waited for."""
FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 10.0
JOIN_S: Final = 10.0
REREAD_S: Final = 20.0
"""How long a reload waits for the store; shorter than who asked for the reload waits for that."""

T = TypeVar("T")

OpenStore: TypeAlias = Callable[[], Store]


@dataclass(slots=True, kw_only=True)
class StoreState:
    """What is known of the store: its address, the revision in force, and when it was last confirmed (ms)."""

    url: str
    revision: str
    confirmed_ms: int
    trouble: str | None = None


class StoreWatcher:
    """Keeps `on_snapshot` informed; it is called in the event loop's thread."""

    def __init__(
        self,
        open_store: OpenStore,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: Counters,
        notify: Notify,
        on_snapshot: Callable[[Snapshot], None],
    ) -> None:
        self._open_store = open_store
        self._loop = loop
        self._clock = clock
        self._counters = counters
        self._notify = notify
        self._on_snapshot = on_snapshot
        self._is_stopping = False
        self._woken = threading.Event()
        self._reread_asked = 0
        self._is_unused = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._first: Future[Snapshot] = Future()
        self._thread = threading.Thread(target=self._run, name="store-follower", daemon=True)
        self.state = StoreState(url="", revision="", confirmed_ms=clock.now_ms())
        """Written in the event loop's thread, but for the first content."""

    def start(self) -> Snapshot:
        """The store's first content; changes are followed from now on.

        Raises what the store raises where it can't be opened or read: without any quotas there is nothing to enforce.
        """
        self._thread.start()
        try:
            return self._first.result()
        except BaseException:
            self.stop()
            raise

    async def reread(self) -> None:
        """Have the store opened anew and its content applied; `state` says what keeps it from being read.

        Returns when that is done or has failed, and after `REREAD_S` in any case.
        """
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
        """Nothing; the thread ends within a moment and closes the store."""
        self._is_stopping = True
        self._woken.set()
        self._thread.join(JOIN_S)

    # In the thread.

    def _run(self) -> None:
        try:
            store = self._open_store()
        except BaseException as error:  # noqa: BLE001 - whoever started the thread gets it
            self._first.set_exception(error)
            return
        with contextlib.closing(_Reopening(store, self._open_store)) as reopening:
            try:
                first = _first_content(store)
            except BaseException as error:  # noqa: BLE001 - whoever started the thread gets it
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
                snapshot = store.watch(None if self._is_unused else since)
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on
                self._tell(self._lost, error, reread)
                store.close()
                self._woken.wait(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
                continue
            since = snapshot.revision if snapshot is not None else since
            self._tell(self._confirmed, snapshot, reread)
            self._woken.wait(retry_s if self._is_unused else LOOK_S)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S) if self._is_unused else FIRST_RETRY_S

    def _tell(self, receive: Callable[[T, int], None], what: T, reread: int) -> None:
        """Nothing; the event loop calls `receive` with it, unless it has ended meanwhile."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(receive, what, reread)

    # In the event loop.

    def _confirmed(self, snapshot: Snapshot | None, reread: int) -> None:
        state = self.state
        if snapshot is None and self._is_unused:
            return  # what there is could not be used, and is read once more
        if snapshot is not None:
            try:
                self._on_snapshot(snapshot)
            except Exception as error:  # noqa: BLE001 - a defect, or content that nobody thought of
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
        self._tell_waiting(reread)

    def _lost(self, error: Exception, reread: int) -> None:
        message = error.message if isinstance(error, KafkaQuotasError) else defect(error)
        self._counters.store_failures += 1
        if self.state.trouble is None:
            self._notify(
                LogEvent(
                    event="store can't be read; its last content stays in force",
                    severity=LogLevel.ERROR,
                    fields={"store": self.state.url, "error": message},
                )
            )
        self.state.trouble = message
        self._tell_waiting(reread)

    def _tell_waiting(self, reread: int) -> None:
        """Nothing; whoever waits for this reading of the store or an earlier one knows that it is done."""
        for number, done in self._waiting:
            if number <= reread and not done.done():
                done.set_result(None)
        self._waiting = [(number, done) for number, done in self._waiting if number > reread]


class _Reopening:
    """A store that is opened anew when it is asked after it was closed."""

    def __init__(self, store: Store, open_store: OpenStore) -> None:
        self._store: Store | None = store
        self._open_store = open_store
        self.was_written = False
        """Whether there was anything to read at some time."""

    def watch(self, since: str | None) -> Snapshot | None:
        """The content if it differs. A store that was written and is not there any more is lost, not empty."""
        snapshot = self._watched(since)
        if snapshot is not None:
            is_written = snapshot.revision != NEVER_WRITTEN
            if self.was_written and not is_written:
                raise StoreUnreachableError("the store is gone", hint="put it back; what it said last stays in force")
            self.was_written = is_written
        return snapshot

    def _watched(self, since: str | None) -> Snapshot | None:
        if self._store is None:
            self._store = self._open_store()
        return self._store.watch(since, timeout_s=0)

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):  # it is given up in any case
                store.close()


def _first_content(store: Store) -> Snapshot:
    """The store's content; raises `KafkaQuotasError` where it says none in time."""
    first = store.watch(None, timeout_s=FIRST_WAIT_S)
    if first is None:
        raise KafkaQuotasError(f"the store said nothing within {FIRST_WAIT_S:g} s: {store.url}")
    return first
