"""The daemon's state on disk: the state of buckets, rates and meters, so a restart is no amnesty.

Version 2 of the file knows the rates of connections and the meters of topics, which version 1 did not.
Invariants: the file is replaced by a rename, so it is the old one or the new one; its content is only taken where
it was written under the same windows and algorithm, for its figures mean nothing anywhere else.
It is written while clients are served, a slice at a time: each bucket, rate and meter is as it was at one moment
between the beginning of the save and `saved_ms`, but not all of them at the same one. None depends on another.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, TextIO, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.core.java import well_formed
from kafka_quotas.core.quotas.quota_bucket import BucketSnapshot
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.proxy.connection_quotas import RateOf, RateSnapshot
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
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

    broker: NodeId | str
    """Node id, None for the broker of the bootstrap address, or `CLUSTER`."""
    mode: Mode
    quota_type: QuotaType
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
        case SavedBucket(snapshot=snapshot):
            user, client_id = snapshot.name
            row = {"mode": saved.mode.value, "type": saved.quota_type.value, "user": user, "client_id": client_id}
            figures = {"kind": snapshot.kind, "recorded_ms": snapshot.recorded_ms, "figures": snapshot.figures}
        case SavedRate(snapshot=snapshot):
            row = {"of": snapshot.of.value, "name": snapshot.name}
            figures = {"recorded_ms": snapshot.recorded_ms, "figures": snapshot.figures}
        case SavedMeter():
            row, figures = {"topic": saved.topic}, {"figures": saved.figures}
    return {"broker": saved.broker, **row, **figures}


def _buckets_of(rows: list[dict[str, Any]]) -> Iterator[SavedBucket]:
    for row in rows:
        yield SavedBucket(
            broker=row["broker"],
            mode=Mode(row["mode"]),
            quota_type=QuotaType(row["type"]),
            snapshot=BucketSnapshot(
                name=(well_formed(str(row["user"])), well_formed(str(row["client_id"]))),
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
