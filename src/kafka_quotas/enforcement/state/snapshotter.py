"""The periodic save of what was measured, a last one at the end, and its restoration at the start.

Invariants: what no longer throttles any client is not saved; times that lie in the future (the clock was set back
meanwhile) are moved back to now, so no client waits longer than before. A save is made in slices between which clients
are served; each bucket in it is as it was at one moment of the save (`state_file` describes that).
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TextIO, cast

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.quotas.quota_bucket import snapshot_of
from kafka_quotas.core.quotas.quota_manager import IDLE_MS, ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER, NodeId, QuotaRegistry
from kafka_quotas.enforcement.state.state_file import (
    Saved,
    SavedBucket,
    SavedMeter,
    SavedRate,
    SavedState,
    StateError,
    read_state,
    state_file,
    state_text,
)
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.enforcement.topics.thresholds import ThresholdRegistry
from kafka_quotas.stores.files.atomic_write import clear_leftovers

SAVE_S: Final = 5.0
"""Pause between two saves: with the time of two saves the most that a killed daemon forgets."""
FIRST_SAVE_S: Final = 0.25
"""Pause before the first save, doubled at each further one up to `SAVE_S`.

A daemon that dies soon after every start would otherwise forget all of every life, and its clients would be unlimited.
"""
_SLICE: Final = 64
"""Figures written down between two pauses: a millisecond's work."""

_WRITE_CHARS: Final = 256 * 1024
"""Characters gathered before a thread writes them."""


class _AbandonedError(Exception):
    """Error that ends a save under way when the daemon ends."""


class StateSnapshotter:
    """The keeper of the state of buckets, connection rates and topic meters in a file.

    Args:
        bootstrap: Returns the node id of the bootstrap listener's broker.
    """

    def __init__(
        self,
        path: Path,
        policy: QuotaRegistry,
        *,
        connections: ConnectionQuotas,
        thresholds: ThresholdRegistry,
        clock: Clock,
        settings: tuple[str, ...],
        bootstrap: Callable[[], NodeId],
        notify: Notify,
    ) -> None:
        self._path = path
        self._policy = policy
        self._connections = connections
        self._thresholds = thresholds
        self._clock = clock
        self._settings = settings
        self._bootstrap = bootstrap
        self._notify = notify
        self._failing = False
        self._ending = asyncio.Event()

    def restore(self) -> None:
        """Restore buckets, rates and meters from the file.

        A file that can't be read is logged and does not keep the daemon from starting. What a killed daemon left of a
        save is removed.
        """
        with contextlib.suppress(OSError):  # the folder may be gone, which the first save reports
            clear_leftovers(self._path)
        try:
            state = read_state(self._path)
            if state is not None:
                self._restore(state)
        except StateError as error:
            self._notify(LogEvent.failure("state can't be restored; every bucket starts empty", error))

    async def keep(self) -> None:
        """Save the state again and again, and a last time after `end`."""
        pause_s = FIRST_SAVE_S
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
                break
            pause_s = min(2 * pause_s, SAVE_S)
            try:
                await self._save_in_slices()
            except StateError as error:
                self._log_failure(error)
            else:
                self._failing = False
        self.save()

    def end(self) -> None:
        """Have `keep` give up a save under way, save the state of this moment and return."""
        self._ending.set()

    async def _save_in_slices(self) -> None:
        """Save the state while clients are served: gathered in the event loop, written in a thread."""
        replacement = state_file(self._path)
        file = await asyncio.to_thread(replacement.__enter__)
        try:
            await self._write_slices(file)
        except BaseException:
            with contextlib.suppress(_AbandonedError):
                replacement.__exit__(*sys.exc_info())
                raise
        else:
            await asyncio.to_thread(replacement.__exit__, None, None, None)

    async def _write_slices(self, file: TextIO) -> None:
        pieces: list[str] = []
        size = 0
        for piece in self._text():
            pieces.append(piece)
            size += len(piece)
            if size < _WRITE_CHARS:
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(file.write, "".join(pieces))
                pieces, size = [], 0
            if self._ending.is_set():
                raise _AbandonedError
        await asyncio.to_thread(file.write, "".join(pieces))

    def save(self) -> None:
        """Save the state of this moment in one go, while no client is served."""
        try:
            with state_file(self._path) as file:
                file.writelines(self._text())
        except StateError as error:
            self._log_failure(error)

    def _restore(self, state: SavedState) -> None:
        if state.settings != self._settings:
            raise StateError(f"the state in {self._path} was kept under other settings: {', '.join(state.settings)}")
        now_ms = self._clock.now_ms()
        shift_ms = min(0, now_ms - state.saved_ms)
        restored = [
            sum(self._is_restored(saved, shift_ms, now_ms) for saved in kind)
            for kind in (state.buckets, state.connections, state.topics)
        ]
        fields: dict[str, str | float] = {
            "file": str(self._path),
            **dict(zip(("buckets", "connections", "topics"), restored, strict=True)),
            "skipped": len(state.buckets) + len(state.connections) + len(state.topics) - sum(restored),
            "age_ms": now_ms - state.saved_ms,
        }
        self._notify(LogEvent(event="state restored", fields=fields))

    def _is_restored(self, saved: Saved, shift_ms: int, now_ms: int) -> bool:
        """Restore one bucket, rate or meter, and return whether it takes the figures.

        It takes neither those of another algorithm nor those that are no figures at all.
        """
        try:
            match saved:
                case SavedBucket(broker=broker):
                    quotas = self._policy.cluster if broker == CLUSTER else self._policy.broker(self._node_id(broker))
                    quotas.manager(saved.quota_type, saved.mode).restore(saved.snapshot, shift_ms)
                case SavedRate(broker=node_id):
                    self._connections.broker(self._node_id(node_id)).rates.restore(saved.snapshot, shift_ms)
                case SavedMeter(broker=node_id):
                    thresholds = self._thresholds.broker(self._node_id(node_id))
                    thresholds.restore(saved.topic, saved.figures, shift_ms=shift_ms, now_ms=now_ms)
        except (ValueError, IndexError, OverflowError):
            return False
        return True

    def _node_id(self, broker: NodeId | str) -> NodeId:
        if isinstance(broker, str):
            raise StateError(f"no broker is called {broker!r}")
        return self._bootstrap() if broker is None else broker

    def _text(self) -> Iterator[str]:
        return state_text(self._settings, self._saved(), now_ms=self._clock.now_ms)

    def _saved(self) -> Iterator[list[Saved]]:
        """Yield slices of all state that may still throttle a client."""
        sources = {manager: (CLUSTER, mode) for mode, manager in self._policy.cluster.managers()} | {
            manager: (self._name(node_id), mode)
            for node_id, quotas in self._policy.brokers.items()
            for mode, manager in quotas.managers()
        }
        now_ms = self._clock.now_ms()
        for buckets in self._policy.pool.walk():
            yield from _sliced(
                SavedBucket(broker=broker, mode=mode, quota_type=manager.quota_type, snapshot=snapshot)
                for bucket, owner in buckets
                if (manager := cast("ClientQuotaManager", owner)) in sources
                for broker, mode in (sources[manager],)
                if bucket.recorded_ms is not None
                and now_ms - bucket.recorded_ms <= _span_ms(manager, mode)
                and (snapshot := snapshot_of(bucket)) is not None
            )
            yield []
        yield from _sliced(self._rates(now_ms))
        yield from _sliced(
            SavedMeter(broker=self._name(node_id), topic=topic, figures=figures)
            for node_id, thresholds in list(self._thresholds.brokers.items())
            for topic, figures in thresholds.snapshots(now_ms)
        )

    def _rates(self, now_ms: int) -> Iterator[SavedRate]:
        window = self._policy.window
        for node_id, made in list(self._connections.brokers.items()):
            for snapshot in made.rates.snapshots():
                if now_ms - snapshot.recorded_ms <= 2 * window.samples * window.window_ms:
                    yield SavedRate(broker=self._name(node_id), snapshot=snapshot)

    def _name(self, node_id: NodeId) -> NodeId:
        # The bootstrap listener's broker may have another id after a restart.
        return None if node_id == self._bootstrap() else node_id

    def _log_failure(self, error: StateError) -> None:
        if not self._failing:
            self._failing = True
            self._notify(LogEvent.failure("state can't be saved", error))


def _sliced(saved: Iterator[Saved]) -> Iterator[list[Saved]]:
    while slice_ := list(islice(saved, _SLICE)):
        yield slice_


def _span_ms(manager: ClientQuotaManager, mode: Mode) -> int:
    """Return how long after its last record a bucket still counts."""
    # Rates forget with their window, debts may last.
    lasts = manager.quota_type is QuotaType.CONTROLLER_MUTATION or mode is Mode.SMOOTH
    return IDLE_MS if lasts else 2 * manager.window.samples * manager.window.window_ms
