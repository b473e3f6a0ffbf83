"""What a daemon has measured, on disk and for its workers: the state of buckets, connection rates and topic meters.

A restart is no amnesty, and a new worker begins with what all have measured.
Invariants: the file is replaced by a rename, so it is the old one or the new one; its content is only taken if it was
written under the same windows and algorithm, because its figures mean nothing anywhere else. What no longer throttles
any client is left out; times in the future (the clock was set back meanwhile) are moved back to now, so no client
waits longer than before.
It is written while clients are served, a slice at a time: each bucket, rate and meter is as it was at one moment
between the beginning of the save and `saved_ms`, but not all of them at the same one. None depends on another.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import Final, TextIO, TypeVar

import msgspec

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.java import well_formed
from kafka_quotas.core.metrics.rate import EwmaMeter
from kafka_quotas.core.model.quota_key import QuotaType, ResourceQuota
from kafka_quotas.core.quotas.quota_bucket import BucketSnapshot, QuotaBucket, snapshot_of
from kafka_quotas.core.quotas.quota_manager import IDLE_MS, ClientQuotaManager
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.decisions import ANY_QUOTA_TYPES
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionRate
from kafka_quotas.enforcement.proxy.proxy_quotas import ProxyQuotas
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER, Broker, BucketId, NodeId
from kafka_quotas.enforcement.sharing.buckets import recorded_since
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.stores.files.atomic_write import clear_leftovers, replacing

VERSION: Final = 5
MAX_BYTES: Final = 1024**3
"""Longest file that is read: some four million buckets."""
MODE: Final = 0o640
"""Most permissions of the file: it names users, client-ids and addresses."""
SAVE_S: Final = 5.0
"""Pause between two saves: with the time of two saves the most that a killed daemon forgets."""
FIRST_SAVE_S: Final = 0.25
"""Pause before the first save, doubled at each further one up to `SAVE_S`.

A daemon that dies soon after every start would otherwise forget all of every life, and its clients would be unlimited.
"""
_WRITE_CHARS: Final = 256 * 1024
_SLICE: Final = 64
"""Figures written down between two pauses: a millisecond's work."""
_RESOURCES: Final = {ResourceQuota.CONNECTION.value: "connections", ResourceQuota.TOPIC.value: "topics"}
_NOT_RESTORED: Final = "state can't be restored; every bucket starts empty"

T = TypeVar("T")


class StateError(KafkaQuotasError):
    """Error for a state file that can't be read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedBucket:
    """The state of one bucket, rate of connections or meter of a topic: see `BucketId`."""

    broker: Broker
    """Its broker, None for that of the bootstrap address."""
    mode: Mode
    quota_type: str
    snapshot: BucketSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """The content of a state file."""

    v: int
    settings: tuple[str, ...]
    """Windows under which the figures were measured."""
    buckets: tuple[SavedBucket, ...]
    saved_ms: int


def read_state(path: Path) -> SavedState | None:
    """Return the state in a file, None if there is no file."""
    try:
        # Anything else could have no end, or keep the daemon waiting for one.
        if not S_ISREG(path.stat().st_mode):
            raise StateError(f"can't read the state in {path}: it is no regular file")
        text = read_text(path, "ascii", max_bytes=MAX_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateError(f"can't read the state in {path}: {error}") from error
    return parse_state(text, str(path))


def parse_state(text: str, source: str) -> SavedState:
    """Return the state in a text of `MeasuredState.text`, from a file or process that error messages name."""
    try:
        data = load_json(text, object_pairs_hook=lambda pairs: {name: _well_formed(value) for name, value in pairs})
    except ValueError as error:
        raise StateError(f"can't read the state in {source}: {error}") from error
    if isinstance(data, dict) and data.get("v", VERSION) != VERSION:
        raise StateError(f"the state in {source} is of version {data['v']}, not {VERSION}")
    try:
        return msgspec.convert(data, SavedState)
    except msgspec.ValidationError as error:
        raise StateError(f"what is in {source} is no state of a daemon") from error


def _well_formed(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [_well_formed(each) for each in value]
    return well_formed(value) if isinstance(value, str) else value


class MeasuredState:
    """The state of all that a daemon measures under the windows of its rules."""

    def __init__(self, quotas: ProxyQuotas, bootstrap: Callable[[], NodeId]) -> None:
        self.quotas = quotas
        self._clock = quotas.clock
        self._bootstrap = bootstrap
        rules = quotas.settings.rules
        self._settings = tuple(f"{each.samples} x {each.window_s} s" for each in (rules.window, rules.mutation_window))
        self._rate_span_ms = 2 * rules.window.samples * rules.window.window_ms

    def text(self) -> Iterator[str]:
        """Yield the text of the state, one piece per slice, between which clients may be served."""
        yield f'{{"v": {VERSION}, "settings": {json.dumps(self._settings)}, "buckets": ['
        comma = ""
        for slice_ in self._slices(self._clock.now_ms()):
            yield comma + ", ".join(json.dumps(msgspec.to_builtins(each)) for each in slice_) if slice_ else ""
            comma = ", " if slice_ else comma
        yield f'], "saved_ms": {self._clock.now_ms()}}}'

    def restore(self, state: SavedState, source: str) -> None:
        """Restore a state from a file or process, and log what was restored."""
        if state.settings != self._settings:
            raise StateError(f"the state in {source} was kept under other settings: {', '.join(state.settings)}")
        now_ms = self._clock.now_ms()
        shift_ms = min(0, now_ms - state.saved_ms)
        restored = dict.fromkeys(("buckets", *_RESOURCES.values()), 0)
        for saved in state.buckets:
            restored[_RESOURCES.get(saved.quota_type, "buckets")] += self._is_restored(saved, shift_ms, now_ms)
        skipped = len(state.buckets) - sum(restored.values())
        where = {"from": source}
        age_ms = now_ms - state.saved_ms
        self.quotas.log_once(LogEvent.of("state restored", **where, **restored, skipped=skipped, age_ms=age_ms))

    def _is_restored(self, saved: SavedBucket, shift_ms: int, now_ms: int) -> bool:
        """Restore one bucket, rate or meter, and return whether it takes the figures.

        It takes neither those of another algorithm nor those that are no figures at all.
        """
        broker, snapshot = self._bootstrap() if saved.broker is None else saved.broker, saved.snapshot
        if isinstance(broker, str) and broker != CLUSTER:
            raise StateError(f"no broker is called {broker!r}")
        try:
            quota_type = ANY_QUOTA_TYPES[saved.quota_type]
            if isinstance(quota_type, QuotaType):
                of = BucketId(broker, saved.mode, quota_type, snapshot.name)
                self.quotas.registry.manager(of).restore(snapshot, shift_ms)
            elif isinstance(broker, str):
                return False
            elif quota_type is ResourceQuota.CONNECTION:
                self.quotas.connections.broker(broker).restore(*snapshot.name, snapshot, shift_ms)
            else:
                thresholds = self.quotas.topics.thresholds.broker(broker)
                thresholds.topics.restore(snapshot.name[0], snapshot.figures, shift_ms, now_ms)
        except (ValueError, LookupError, OverflowError):
            return False
        return True

    # Only what may still throttle a client is saved.

    def _slices(self, now_ms: int) -> Iterator[list[SavedBucket]]:
        for buckets in self.quotas.registry.pool.walk():
            yield from _sliced(self._saved_buckets(buckets, now_ms))
            yield []
        yield from _sliced(self._saved_others(now_ms))

    def _saved_buckets(self, buckets: list[QuotaBucket], now_ms: int) -> Iterator[SavedBucket]:
        for bucket in recorded_since((buckets,), now_ms - IDLE_MS):
            of = self.quotas.registry.id_of(bucket)
            if of is None or now_ms - (bucket.recorded_ms or 0) > _span_ms(bucket.owner, of.mode):
                continue
            if (snapshot := snapshot_of(bucket)) is not None:
                yield self._saved(of, snapshot)

    def _saved_others(self, now_ms: int) -> Iterator[SavedBucket]:
        for of, rate in self.quotas.rates():
            if rate.last_ms and now_ms - rate.last_ms <= self._rate_span_ms:
                yield self._saved(of, _snapshot(of, rate, rate.last_ms))
        for of, meter, _ in self.quotas.meters():
            if meter.rate(now_ms) >= 1.0 or meter.is_counting:
                yield self._saved(of, _snapshot(of, meter, meter.recorded_ms))

    def _saved(self, of: BucketId, snapshot: BucketSnapshot) -> SavedBucket:
        # The bootstrap listener's broker may have another id after a restart.
        broker = None if of.broker == self._bootstrap() else of.broker
        return SavedBucket(broker=broker, mode=of.mode, quota_type=of.quota_type.value, snapshot=snapshot)


def _snapshot(of: BucketId, measured: ConnectionRate | EwmaMeter, recorded_ms: int) -> BucketSnapshot:
    kind = type(measured).__name__
    return BucketSnapshot(name=of.name, kind=kind, recorded_ms=recorded_ms, figures=measured.snapshot)


def _sliced(saved: Iterator[T]) -> Iterator[list[T]]:
    while slice_ := list(islice(saved, _SLICE)):
        yield slice_


def _span_ms(manager: ClientQuotaManager, mode: Mode) -> int:
    # Rates forget with their window, debts may last.
    lasts = manager.quota_type is QuotaType.CONTROLLER_MUTATION or mode is Mode.SMOOTH
    return IDLE_MS if lasts else 2 * manager.window.samples * manager.window.window_ms


class _AbandonedError(Exception):
    """Error that ends a save under way when the daemon ends."""


def saved_state(path: Path | None, notify: Notify) -> SavedState | None:
    """Return the state in a file, None without one or if it can't be read, which is logged."""
    try:
        return None if path is None else read_state(path)
    except StateError as error:
        notify(LogEvent.failure(_NOT_RESTORED, error))
        return None


class StateSnapshotter:
    """The keeper of a state file, which is restored at the start and saved until the end."""

    def __init__(self, path: Path, measured: MeasuredState) -> None:
        self._path = path
        self._measured = measured
        self._counters = measured.quotas.counters
        self._saved_s = time.monotonic()
        self._notify = measured.quotas.notify
        self._failing = False
        self._ending = asyncio.Event()

    def age_ms(self) -> int:
        """Return the time since the last save, or since the start."""
        return int(1000 * (time.monotonic() - self._saved_s))

    def restore(self, saved: SavedState | None) -> None:
        """Restore what `saved_state` returned, and remove the rest of a save that was killed."""
        with contextlib.suppress(OSError):  # the folder may be gone, which the first save reports
            clear_leftovers(self._path)
        try:
            if saved is not None:
                self._measured.restore(saved, str(self._path))
        except StateError as error:
            self._notify(LogEvent.failure(_NOT_RESTORED, error))

    async def keep(self) -> None:
        """Save the state again and again, and a last time after `end`."""
        pause_s = FIRST_SAVE_S
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
                break
            pause_s = min(2 * pause_s, SAVE_S)
            with self._reported():
                await self._save_in_slices()
        self.save()

    def end(self) -> None:
        """Have `keep` give up a save under way, save the state of this moment and return."""
        self._ending.set()

    def save(self) -> None:
        """Save the state of this moment in one go, while no client is served."""
        with self._reported(), replacing(self._path, most=MODE) as file:
            file.writelines(self._measured.text())

    async def _save_in_slices(self) -> None:
        """Save the state while clients are served: gathered in the event loop, written in a thread."""
        replacement = replacing(self._path, most=MODE)
        file = await asyncio.to_thread(replacement.__enter__)
        try:
            await self._write_slices(file)
        except BaseException:
            replacement.__exit__(*sys.exc_info())
            raise
        await asyncio.to_thread(replacement.__exit__, None, None, None)

    async def _write_slices(self, file: TextIO) -> None:
        pieces: list[str] = []
        size = 0
        for piece in self._measured.text():
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

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except _AbandonedError:
            return
        except OSError as error:
            self._counters.state_save_failures += 1
            if not self._failing:
                self._failing = True
                why = StateError(f"can't write the state to {self._path}: {error.strerror or error}")
                self._notify(LogEvent.failure("state can't be saved", why))
            return
        self._failing = False
        self._counters.state_saves += 1
        self._saved_s = time.monotonic()
