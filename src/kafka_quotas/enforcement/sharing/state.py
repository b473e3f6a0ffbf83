"""What a daemon has measured, on disk and for its workers: the state of buckets, connection rates and topic meters.

A restart is no amnesty, and a new worker begins with what all have measured.
Invariants: the file is replaced by a rename, so it is the old one or the new one; its content is only taken where
it was written under the same windows and algorithm, for its figures mean nothing anywhere else. What no longer
throttles any client is left out; times that lie in the future (the clock was set back meanwhile) are moved back to now,
so no client waits longer than before.
It is written while clients are served, a slice at a time: each bucket, rate and meter is as it was at one moment
between the beginning of the save and `saved_ms`, but not all of them at the same one. None depends on another.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, TextIO, TypeAlias

from kafka_quotas.core.clock import Clock
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.java import well_formed
from kafka_quotas.core.quotas.quota_bucket import BucketSnapshot, snapshot_of
from kafka_quotas.core.quotas.quota_manager import IDLE_MS, ClientQuotaManager, QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.filters.thresholds import ThresholdRegistry
from kafka_quotas.enforcement.proxy.connection_quotas import ConnectionQuotas, RateOf, RateSnapshot
from kafka_quotas.enforcement.quotas.quota_registry import CLUSTER, NodeId, QuotaRegistry
from kafka_quotas.enforcement.sharing.buckets import Broker, BucketId, Buckets, recorded_since
from kafka_quotas.enforcement.telemetry.log import LogEvent, Notify
from kafka_quotas.stores.files.atomic_write import replacing

VERSION: Final = 2
MAX_BYTES: Final = 1024**3
"""Longest file that is read: some four million buckets."""
READABLE: Final = (1, 2)
"""Versions that can be read."""
MODE: Final = 0o640
"""Most permissions of the file: it names users, client-ids and addresses."""


class StateError(KafkaQuotasError):
    """Error for a state file that can't be read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedBucket:
    """The state of one bucket and the quota that it belongs to."""

    of: BucketId
    """Its id, with None for the broker of the bootstrap address."""
    snapshot: BucketSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRate:
    """The state of one rate of connections to a broker."""

    broker: NodeId
    """Node id, None for the broker of the bootstrap address."""
    snapshot: RateSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMeter:
    """The state of the meter of what a broker takes in for a topic."""

    broker: NodeId
    """Node id, None for the broker of the bootstrap address."""
    topic: str
    """Topic, empty for all together."""
    figures: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """The content of a state file."""

    saved_ms: int
    """Time of the save."""
    settings: tuple[str, ...]
    """Windows under which the figures were measured."""
    buckets: tuple[SavedBucket, ...]
    connections: tuple[SavedRate, ...] = ()
    topics: tuple[SavedMeter, ...] = ()


Saved: TypeAlias = SavedBucket | SavedRate | SavedMeter


@contextmanager
def state_file(path: Path) -> Iterator[TextIO]:
    """Open the file that replaces a state file at the end.

    Raises:
        StateError: The file can't be written, which leaves the old one in place.
    """
    try:
        with replacing(path, most=MODE) as file:
            yield file
    except OSError as error:
        raise StateError(f"can't write the state to {path}: {error.strerror or error}") from error


def state_text(
    settings: tuple[str, ...], saved: Iterable[Iterable[Saved]], *, now_ms: Callable[[], int]
) -> Generator[str, None, None]:
    """Yield the text of a state file, one piece per slice.

    Args:
        settings: Windows under which the figures were measured.
        saved: Slices of the content: all buckets, then all rates of connections, then all meters.
        now_ms: Returns the time at the end of the save.
    """
    lists = {SavedBucket: "buckets", SavedRate: "connections", SavedMeter: "topics"}
    missing = list(lists.values())
    yield f'{{"v": {VERSION}, "settings": {json.dumps(settings)}'
    current = None
    for slice_ in saved:
        pieces = []
        for each in slice_:
            list_name = lists[type(each)]
            if list_name == current:
                pieces.append(", ")
            else:
                pieces.append(f'{"" if current is None else "]"}, "{list_name}": [')
                missing.remove(list_name)
                current = list_name
            pieces.append(json.dumps(_to_json(each)))
        yield "".join(pieces)
    end = "" if current is None else "]"
    yield end + "".join(f', "{list_name}": []' for list_name in missing) + f', "saved_ms": {now_ms()}}}'


def read_state(path: Path) -> SavedState | None:
    """Return the state in a file, None where there is no file.

    Raises:
        StateError: The file can't be read or understood.
    """
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
    """Return the state in a text.

    Args:
        text: The output of `state_text`.
        source: The file or process it comes from, for error messages.

    Raises:
        StateError: The text can't be understood.
    """
    try:
        data = load_json(text)
    except ValueError as error:
        raise StateError(f"can't read the state in {source}: {error}") from error
    try:
        if data["v"] not in READABLE:
            raise StateError(f"the state in {source} is of version {data['v']}, not {' or '.join(map(str, READABLE))}")
        return SavedState(
            saved_ms=int(data["saved_ms"]),
            settings=tuple(data["settings"]),
            buckets=tuple(_buckets_of(data["buckets"])),
            connections=tuple(_rates_of(data.get("connections", []))),
            topics=tuple(
                SavedMeter(broker=_node_id(row), topic=well_formed(str(row["topic"])), figures=_figures(row))
                for row in data.get("topics", [])
            ),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise StateError(f"what is in {source} is no state of a daemon") from error


def _to_json(saved: Saved) -> dict[str, Any]:
    match saved:
        case SavedBucket(of=of, snapshot=snapshot):
            user, client_id = of.name
            row = {"mode": of.mode.value, "type": of.quota_type.value, "user": user, "client_id": client_id}
            figures = {"kind": snapshot.kind, "recorded_ms": snapshot.recorded_ms, "figures": snapshot.figures}
            return {"broker": of.broker, **row, **figures}
        case SavedRate(snapshot=snapshot):
            row = {"of": snapshot.of.value, "name": snapshot.name}
            figures = {"recorded_ms": snapshot.recorded_ms, "figures": snapshot.figures}
        case SavedMeter():
            row, figures = {"topic": saved.topic}, {"figures": saved.figures}
    return {"broker": saved.broker, **row, **figures}


def _buckets_of(rows: list[dict[str, Any]]) -> Iterator[SavedBucket]:
    for row in rows:
        name = (well_formed(str(row["user"])), well_formed(str(row["client_id"])))
        yield SavedBucket(
            of=BucketId(row["broker"], Mode(row["mode"]), QuotaType(row["type"]), name),
            snapshot=BucketSnapshot(
                name=name,
                kind=str(row["kind"]),
                recorded_ms=int(row["recorded_ms"]),
                figures=_figures(row),
            ),
        )


def _rates_of(rows: list[dict[str, Any]]) -> Iterator[SavedRate]:
    for row in rows:
        snapshot = RateSnapshot(
            of=RateOf(row["of"]),
            name=well_formed(str(row["name"])),
            recorded_ms=int(row["recorded_ms"]),
            figures=_figures(row),
        )
        yield SavedRate(broker=_node_id(row), snapshot=snapshot)


def _figures(row: dict[str, Any]) -> tuple[float, ...]:
    return tuple(float(figure) for figure in row["figures"])


def _node_id(row: dict[str, Any]) -> NodeId:
    broker = row["broker"]
    return None if broker is None else int(broker)


_SLICE: Final = 64
"""Figures written down between two pauses: a millisecond's work."""


class MeasuredState:
    """The state of all that a daemon measures.

    Args:
        settings: The windows under which it measures.
        bootstrap: Returns the node id of the bootstrap listener's broker.
    """

    def __init__(
        self,
        policy: QuotaRegistry,
        *,
        connections: ConnectionQuotas,
        thresholds: ThresholdRegistry,
        clock: Clock,
        settings: tuple[str, ...],
        bootstrap: Callable[[], NodeId],
        notify: Notify,
    ) -> None:
        self._buckets = Buckets(policy)
        self._window = policy.window
        self._connections = connections
        self._thresholds = thresholds
        self._clock = clock
        self._settings = settings
        self._bootstrap = bootstrap
        self._notify = notify

    def text(self) -> Iterator[str]:
        """Yield the text of the state, one piece per slice, between which clients may be served."""
        return state_text(self._settings, self._saved(), now_ms=self._clock.now_ms)

    def restore(self, state: SavedState, source: str) -> None:
        """Restore a state, and log what was restored.

        Args:
            state: The state.
            source: The file or process it comes from, for people.

        Raises:
            StateError: The state was measured under other windows.
        """
        if state.settings != self._settings:
            raise StateError(f"the state in {source} was kept under other settings: {', '.join(state.settings)}")
        now_ms = self._clock.now_ms()
        shift_ms = min(0, now_ms - state.saved_ms)
        restored = [
            sum(self._is_restored(saved, shift_ms, now_ms) for saved in kind)
            for kind in (state.buckets, state.connections, state.topics)
        ]
        fields: dict[str, str | float] = {
            "from": source,
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
                case SavedBucket(of=of):
                    broker = of.broker if of.broker == CLUSTER else self._node_id(of.broker)
                    self._buckets.manager(of._replace(broker=broker)).restore(saved.snapshot, shift_ms)
                case SavedRate(broker=node_id):
                    self._connections.broker(self._node_id(node_id)).rates.restore(saved.snapshot, shift_ms)
                case SavedMeter(broker=node_id):
                    thresholds = self._thresholds.broker(self._node_id(node_id))
                    thresholds.restore(saved.topic, saved.figures, shift_ms=shift_ms, now_ms=now_ms)
        except (ValueError, IndexError, OverflowError):
            return False
        return True

    def _node_id(self, broker: Broker) -> NodeId:
        if isinstance(broker, str):
            raise StateError(f"no broker is called {broker!r}")
        return self._bootstrap() if broker is None else broker

    def _saved(self) -> Iterator[list[Saved]]:
        """Yield slices of all state that may still throttle a client."""
        now_ms = self._clock.now_ms()
        for pairs in self._buckets.pool.walk():
            yield from _sliced(
                SavedBucket(of=self._named(of), snapshot=snapshot)
                for bucket, manager in recorded_since((pairs,), now_ms - IDLE_MS)
                if (of := self._buckets.id_of(bucket, manager)) is not None
                and now_ms - (bucket.recorded_ms or 0) <= _span_ms(manager, of.mode)
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
        window = self._window
        for node_id, made in list(self._connections.brokers.items()):
            for snapshot in made.rates.snapshots():
                if now_ms - snapshot.recorded_ms <= 2 * window.samples * window.window_ms:
                    yield SavedRate(broker=self._name(node_id), snapshot=snapshot)

    def _named(self, of: BucketId) -> BucketId:
        return of if isinstance(of.broker, str) else of._replace(broker=self._name(of.broker))

    def _name(self, node_id: NodeId) -> NodeId:
        # The bootstrap listener's broker may have another id after a restart.
        return None if node_id == self._bootstrap() else node_id


def _sliced(saved: Iterator[Saved]) -> Iterator[list[Saved]]:
    while slice_ := list(islice(saved, _SLICE)):
        yield slice_


def _span_ms(manager: ClientQuotaManager, mode: Mode) -> int:
    """Return how long after its last record a bucket still counts."""
    # Rates forget with their window, debts may last.
    lasts = manager.quota_type is QuotaType.CONTROLLER_MUTATION or mode is Mode.SMOOTH
    return IDLE_MS if lasts else 2 * manager.window.samples * manager.window.window_ms
