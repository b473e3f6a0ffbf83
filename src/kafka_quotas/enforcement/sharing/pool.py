"""The parent's end of its workers: they are started, get connections, hear of each other's charges, and are replaced.

Invariants: a connection counts for its listener and address until its worker reports its end, or dies; a worker starts
with all that was measured so far, and nothing reaches it twice; a worker that dies soon after its start is replaced
after a pause, which doubles up to `LONGEST_PAUSE_S`; one that says nothing for `SILENT_S` is ended and replaced.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from typing import Any, Final

from kafka_quotas.core.clock import MonotonicClock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.enforcement.config.address import Address, ListenError
from kafka_quotas.enforcement.proxy.listener import Listener
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.proxy.proxy_server import AcceptedConnection, ProxyServer
from kafka_quotas.enforcement.quotas.quota_registry import BucketId, Route
from kafka_quotas.enforcement.quotas.store_watcher import ChangedSnapshot
from kafka_quotas.enforcement.sharing.channel import WorkerProcess, WorkerStart, WorkerTotals, packed, start_process
from kafka_quotas.enforcement.sharing.charges import SharedCharge, SharedCharges
from kafka_quotas.enforcement.sharing.state import MeasuredState
from kafka_quotas.enforcement.sharing.worker import IDLE_TICK_S, TICK_S, TOTALS_S
from kafka_quotas.enforcement.telemetry.log import LogEvent, LogLevel
from kafka_quotas.enforcement.telemetry.status import MAX_ROWS, DaemonStatus, WorkerRow, merge_rows

START_S: Final = 120.0
ANSWER_S: Final = 5.0
SILENT_S: Final = 10.0
"""Time without a message after which a worker counts as hung: its counters come every second."""
END_S: Final = 5.0
"""Seconds that a worker gets to end after it had to be drained."""
SOON_S: Final = 10.0
"""Life of a worker under which its end counts as a failed start."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0


class WorkerError(KafkaQuotasError):
    """Error for workers that can't be started."""


class WorkerPool:
    """The workers of one daemon, none if its main process serves all connections."""

    def __init__(self, quotas: ProxyQuotas, clock: MonotonicClock) -> None:
        self._settings = settings = quotas.settings
        self.count = settings.workers if settings.workers > 1 else 0
        """How many there are."""
        self.shared = SharedCharges(quotas)
        self._clock = clock
        self._notify = quotas.notify
        self._proxy: ProxyServer | None = None
        self._measured: MeasuredState | None = None
        self._content: tuple[ChangedSnapshot, str] | None = None
        self._loop = asyncio.get_running_loop()
        self._workers: dict[int, WorkerProcess] = {}
        self.ended = WorkerTotals()
        self._early: list[AcceptedConnection] = []
        self._charges: list[tuple[int, list[SharedCharge]]] = []
        self._heard = asyncio.Event()
        self._requests = itertools.count()
        self._is_ending = False
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, proxy: ProxyServer, measured: MeasuredState) -> None:
        """Start the workers and wait until all serve."""
        if not self.count:
            return
        self._proxy, self._measured = proxy, measured
        self.shared.begin()
        for number in range(1, self.count + 1):
            self._spawn(number, starts=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while not self._all_ready and len(self._workers) == self.count:
                    await self._wait_for_change()
        if len(self._workers) < self.count or not self._all_ready:
            raise WorkerError("a worker can't be started", hint="its error is above")
        self._begin(self._share())
        self._begin(self._watch())

    def apply(self, snapshot: ChangedSnapshot, store_url: str) -> None:
        """Have the workers put a content of the store in force."""
        if not self.count:
            return
        self._content = (snapshot, store_url)
        # They have all of it but what has changed.
        changes = snapshot if snapshot.since is None else replace(snapshot, entries=())
        self._broadcast("change_store", changes, store_url)

    @property
    def connections(self) -> int:
        """The number of connections that workers serve."""
        return sum(len(each.slots) for each in self._workers.values())

    @property
    def _all_ready(self) -> bool:
        return all(each.is_ready for each in self._workers.values())

    def rows(self) -> tuple[WorkerRow, ...]:
        """Return the workers at this moment."""
        return tuple(
            WorkerRow(number=each.number, pid=each.process.pid, connections=len(each.slots), starts=each.starts)
            for each in self._workers.values()
        )

    def dispatch(self, accepted: AcceptedConnection) -> None:
        """Hand an admitted connection to the worker that serves the fewest."""
        ready = [each for each in self._workers.values() if each.is_ready]
        if not ready:
            self._early.append(accepted)
            return
        worker = min(ready, key=lambda each: len(each.slots))
        worker.slots[accepted.number] = accepted.slot
        worker.channel.call("serve", accepted.number, accepted.route, accepted.source, sockets=[accepted.client])

    def route_changed(self, route: Route) -> None:
        """Have the workers take up a route that has changed."""
        self._broadcast("meet", route)

    def waiting(self) -> Counter[BucketId]:
        """Return how many clients of all workers are throttled for each bucket."""
        waiting: Counter[BucketId] = Counter()
        for worker in self._workers.values():
            waiting.update(worker.waiting)
        return waiting

    async def ask(self, question: str, *arguments: object) -> list[object]:
        """Return the answers to a question of `Worker` by those workers that answer in time."""
        number = next(self._requests)
        futures = []
        for worker in self._workers.values():
            if worker.is_ready:
                worker.answers[number] = future = self._loop.create_future()
                futures.append(future)
        self._broadcast("answer", number, question, *arguments)
        if futures:
            await asyncio.wait(futures, timeout=ANSWER_S)
        for worker in self._workers.values():
            worker.answers.pop(number, None)
        return [each.result() for each in futures if each.done() and not each.cancelled()]

    async def drain(self, timeout_s: float) -> int:
        """Have the workers answer what has begun and end, and return how many connections they cut."""
        self._is_ending = True
        workers = list(self._workers.values())
        for worker in workers:
            if not worker.is_ready:
                worker.process.kill()
        self._broadcast("drain", timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s + END_S):
                while self._workers:
                    await self._wait_for_change()
        return sum(each.cut_connections for each in workers)

    async def close(self) -> None:
        """End every worker at once."""
        self._is_ending = True
        for task in self._tasks:
            task.cancel()
        for accepted in self._early:
            accepted.client.close()
            accepted.slot.end()
        for worker in list(self._workers.values()):
            worker.channel.close()
            worker.questions.close()
            worker.process.kill()
            await asyncio.to_thread(worker.process.wait)
        self._workers.clear()

    # One worker.

    def _spawn(self, number: int, *, starts: int) -> None:
        if self._is_ending:
            return
        assert self._proxy is not None
        assert self._measured is not None
        assert self._content is not None
        self._flush(whole=True)  # what follows the first call must not be in it
        self.shared.repeat_reservations()
        snapshot, store_url = self._content
        self._workers[number] = worker = start_process(
            self._loop, number, starts, called=self._called, on_closed=lambda worker: self._begin(self._replace(worker))
        )
        settings = self._settings
        start = WorkerStart(
            worker=number,
            settings=replace(
                settings,
                workers=1,
                connection_rate=None,
                max_connections=None,
                queued_max_request_bytes=max(1, settings.queued_max_request_bytes // settings.workers),
            ),
            clock_offset_ns=self._clock.offset_ns,
            store_url=store_url,
            snapshot=snapshot,
            state="".join(self._measured.text()),
            routes=tuple(each for listener in self._listeners for each in listener.brokers.routes if each.is_known),
        )
        worker.channel.call("start", start)

    def _broadcast(self, name: str, *arguments: object) -> None:
        data = packed(name, *arguments) if self._workers else b""
        for worker in self._workers.values():
            worker.channel.send(data)

    # What workers call.

    def _called(self, worker: WorkerProcess, name: str, *arguments: Any) -> None:
        getattr(self, f"_on_{name}")(worker, *arguments)

    def _on_ready(self, worker: WorkerProcess) -> None:
        worker.is_ready = True
        worker.silent_s = 0.0
        early, self._early = self._early, []
        for each in early:
            self.dispatch(each)
        self._changed.set()

    def _on_charges(self, worker: WorkerProcess, charges: list[SharedCharge]) -> None:
        self.shared.record(charges, self._clock.now_ms())
        self._charges.append((worker.number, charges))
        self._heard.set()

    def _on_waiting(self, worker: WorkerProcess, counts: Mapping[BucketId, int]) -> None:
        worker.waiting = counts

    def _on_closed(self, worker: WorkerProcess, number: int) -> None:
        if number in worker.slots:
            worker.slots.pop(number).end()

    def _on_log(self, _: WorkerProcess, event: LogEvent) -> None:
        self._notify(event)

    def _on_meet(self, _: WorkerProcess, route: Route) -> None:
        assert self._proxy is not None
        self._proxy.meet(route)

    def _on_totals(self, worker: WorkerProcess, totals: WorkerTotals) -> None:
        worker.totals = totals
        worker.silent_s = 0.0

    def _on_answer(self, worker: WorkerProcess, number: int, result: object) -> None:
        future = worker.answers.get(number)
        if future is not None and not future.done():
            future.set_result(result)

    def _on_drained(self, worker: WorkerProcess, cut_connections: int) -> None:
        worker.cut_connections = cut_connections

    def _on_port(self, worker: WorkerProcess, role: str, upstream: Address | None) -> None:
        name, _, broker = role.rpartition("/")
        listener = next(each for each in self._listeners if each.settings.name == name)
        try:
            if role not in listener.role_ports and upstream is not None:
                listener.brokers.route(int(broker), upstream)
            worker.questions.call("opened", listener.role_ports[role])
        except KafkaQuotasError as error:
            worker.questions.call("opened", ListenError(error.message, hint=error.hint))
        except KeyError:
            worker.questions.call("opened", ListenError(f"{role} has no listener"))

    @property
    def _listeners(self) -> list[Listener]:
        return [] if self._proxy is None else self._proxy.listeners

    async def _replace(self, worker: WorkerProcess) -> None:
        worker.questions.close()
        served = len(worker.slots)
        for slot in worker.slots.values():
            slot.end()
        worker.slots.clear()
        self.ended = sum_of([self.ended, worker.totals])
        for future in worker.answers.values():
            future.cancel()
        was_ready = worker.is_ready
        worker.is_ready = False
        code = await asyncio.to_thread(worker.process.wait)
        self._workers.pop(worker.number, None)
        self._changed.set()
        if self._is_ending:
            return
        lived_s = self._loop.time() - worker.started_s
        pause_s = 0.0
        if not was_ready or lived_s < SOON_S:
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(worker.starts - 1, 10))
        event, pid = "a worker has ended; another one takes its place", worker.process.pid
        fields = {"worker": worker.number, "pid": pid, "exit_code": code, "connections": served, "pause_s": pause_s}
        self._notify(LogEvent.of(event, LogLevel.ERROR, **fields))
        self._loop.call_later(pause_s, partial(self._spawn, worker.number, starts=worker.starts + 1))

    # What happens by the clock.

    async def _share(self) -> None:
        while True:
            if self._flush():
                await asyncio.sleep(TICK_S)
                continue
            self._heard.clear()
            with contextlib.suppress(TimeoutError):  # whoever begins a burst is to be heard of at once
                async with asyncio.timeout(IDLE_TICK_S):
                    await self._heard.wait()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TOTALS_S)
            for worker in self._workers.values():
                # Counted in turns of this loop: a machine that was asleep has not made every worker hang.
                worker.silent_s += TOTALS_S
                if worker.silent_s >= (SILENT_S if worker.is_ready else START_S) and not self._is_ending:
                    event = "a worker has said nothing for too long and is ended"
                    fields = {"worker": worker.number, "pid": worker.process.pid, "s": worker.silent_s}
                    self._notify(LogEvent.of(event, LogLevel.ERROR, **fields))
                    worker.process.kill()
                    worker.silent_s = 0.0

    def _flush(self, *, whole: bool = False) -> bool:
        own = self.shared.take(self._clock.now_ms(), whole=whole)
        charges, self._charges = self._charges, []
        if own:
            charges.append((0, own))
        if charges and self._workers:
            self._broadcast("charges", charges)
        return bool(charges)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def merged(
    parent: DaemonStatus, workers: Sequence[DaemonStatus], rows: tuple[WorkerRow, ...], ended: WorkerTotals
) -> DaemonStatus:
    """Return the status of the daemon as a whole, with the counters of workers that have ended."""
    everyone = (parent, *workers)
    throttled = merge_rows(row for each in workers for row in each.throttled)
    # The first bucket of a name is the parent's, which measures all; throttle times are the workers'.
    buckets = merge_rows(row for each in everyone for row in each.buckets)
    throttles = merge_rows(row for each in workers for row in each.throttles)
    hours = merge_rows(row for each in workers for row in each.last_hour)
    listeners = merge_rows(row for each in everyone for row in each.listeners)
    totals = (WorkerTotals(counters=each.counters, quota_totals=each.quota_totals) for each in everyone)
    total = sum_of([ended, *totals])
    return replace(
        parent,
        connections=sum(each.connections for each in workers),
        longest_stall_ms=max(each.longest_stall_ms for each in everyone),
        listeners=tuple(listeners[: len(parent.listeners)]),
        throttled=tuple(nlargest(MAX_ROWS, throttled, key=lambda row: row.remaining_ms)),
        buckets=tuple(sorted(buckets, key=lambda row: (row.user, row.client_id, row.quota, row.broker, row.mode))),
        throttles=tuple(sorted(throttles, key=lambda row: (row.user, row.client_id, row.quota))[: 2 * MAX_ROWS]),
        thresholds=tuple(merge_rows(row for each in everyone for row in each.thresholds)[:MAX_ROWS]),
        counters=total.counters,
        quota_totals=total.quota_totals,
        last_hour=tuple(nlargest(MAX_ROWS, hours, key=lambda row: row.total_ms)),
        workers=rows,
    )


def sum_of(totals: Iterable[WorkerTotals]) -> WorkerTotals:
    """Return the sums of all counters."""
    every = list(totals)
    counters: Counter[str] = Counter()
    for each in every:
        counters.update(each.counters)
    rows = merge_rows(row for each in every for row in each.quota_totals)
    return WorkerTotals(counters=dict(counters), quota_totals=tuple(rows))
