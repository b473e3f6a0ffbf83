"""The daemon's memory on disk: what buckets, rates and meters have to remember, so that a restart is no amnesty.

Version 2 of the file knows the rates of connections and the meters of topics, which version 1 did not.
Invariants: the file is replaced as a whole, so that it is the old one or the new one; its content is only taken where
it was written under the same windows and algorithm, for its figures mean nothing else anywhere else.
It is written while clients are served, a slice at a time: each bucket, rate and meter is as it was at one moment
between the beginning of the save and `saved_ms`, but not all of them at the same one. None depends on another.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.java.utf8 import well_formed
from kafka_quotas.core.quotas.quota_bucket import BucketSnapshot
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.proxy.connection_rate import RateMemory, RateOf
from kafka_quotas.enforcement.quotas.quota_registry import NodeId
from kafka_quotas.stores.files.atomic_write import replacing

VERSION: Final = 2
READABLE: Final = (1, 2)
"""The versions that are understood."""
MODE: Final = 0o640
"""The permissions of the file at most: it names users, client-ids and addresses."""
CLUSTER: Final = "cluster"
"""In place of a broker: the buckets of quotas whose scope is the cluster."""


class StateError(KafkaQuotasError):
    """The state file can't be read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedBucket:
    """A bucket's memory and where it belongs: a broker (None: the one behind the bootstrap address) or the cluster."""

    broker: NodeId | str
    mode: Mode
    quota_type: QuotaType
    memory: BucketSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRate:
    """The memory of a rate of connections to a broker (None: the one behind the bootstrap address)."""

    broker: NodeId
    memory: RateMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMeter:
    """The figures of what a broker (None: as above) takes in for a topic; of all topics where it is empty."""

    broker: NodeId
    topic: str
    figures: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """All of it at one moment (ms), and the settings under which the figures mean something."""

    saved_ms: int
    settings: tuple[str, ...]
    buckets: tuple[SavedBucket, ...]
    connections: tuple[SavedRate, ...] = ()
    topics: tuple[SavedMeter, ...] = ()


Saved: TypeAlias = SavedBucket | SavedRate | SavedMeter


@contextmanager
def state_file(path: Path) -> Iterator[TextIO]:
    """Open what takes the place of a state file at the end.

    Raises:
        StateError: it can't be written; then the file is what it was.
    """
    try:
        with replacing(path, most=MODE) as file:
            yield file
    except OSError as error:
        raise StateError(f"can't write the state to {path}: {error.strerror or error}") from error


def state_text(
    settings: tuple[str, ...], saved: Iterable[Iterable[Saved]], *, now_ms: Callable[[], int]
) -> Generator[str, None, None]:
    """Yield the text of a state file, a piece for each slice of what is to be saved.

    Args:
        settings: what the figures were measured under.
        saved: slices of what is to be saved: all buckets, then all rates of connections, then all meters.
        now_ms: tells the time when all of it was gathered.
    """
    places = {SavedBucket: "buckets", SavedRate: "connections", SavedMeter: "topics"}
    missing = list(places.values())
    yield f'{{"v": {VERSION}, "settings": {json.dumps(settings)}'
    current = None
    for slice_ in saved:
        pieces = []
        for each in slice_:
            place = places[type(each)]
            if place == current:
                pieces.append(", ")
            else:
                pieces.append(f'{"" if current is None else "]"}, "{place}": [')
                missing.remove(place)
                current = place
            pieces.append(json.dumps(_to_json(each)))
        yield "".join(pieces)
    end = "" if current is None else "]"
    yield end + "".join(f', "{place}": []' for place in missing) + f', "saved_ms": {now_ms()}}}'


def read_state(path: Path) -> SavedState | None:
    """The state in a file, None where there is no file.

    Raises `StateError` where it can't be read or understood.
    """
    try:
        data = json.loads(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateError(f"can't read the state in {path}: {error}") from error
    try:
        if data["v"] not in READABLE:
            raise StateError(f"the state in {path} is of version {data['v']}, not {' or '.join(map(str, READABLE))}")
        return SavedState(
            saved_ms=int(data["saved_ms"]),
            settings=tuple(data["settings"]),
            buckets=tuple(_buckets_of(data["buckets"])),
            connections=tuple(_rates_of(data.get("connections", []))),
            topics=tuple(_meters_of(data.get("topics", []))),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise StateError(f"what is in {path} is no state of a daemon") from error


def _to_json(saved: Saved) -> dict[str, Any]:
    match saved:
        case SavedBucket():
            return _bucket_to_json(saved)
        case SavedRate():
            return _rate_to_json(saved)
        case SavedMeter():
            return {"broker": saved.broker, "topic": saved.topic, "figures": saved.figures}


def _bucket_to_json(bucket: SavedBucket) -> dict[str, Any]:
    return {
        "broker": bucket.broker,
        "mode": bucket.mode.value,
        "type": bucket.quota_type.value,
        "user": bucket.memory.name[0],
        "client_id": bucket.memory.name[1],
        "kind": bucket.memory.kind,
        "recorded_ms": bucket.memory.recorded_ms,
        "figures": bucket.memory.figures,
    }


def _rate_to_json(rate: SavedRate) -> dict[str, Any]:
    return {
        "broker": rate.broker,
        "of": rate.memory.of.value,
        "name": rate.memory.name,
        "recorded_ms": rate.memory.recorded_ms,
        "figures": rate.memory.figures,
    }


def _buckets_of(rows: list[dict[str, Any]]) -> Iterator[SavedBucket]:
    for row in rows:
        yield SavedBucket(
            broker=row["broker"],
            mode=Mode(row["mode"]),
            quota_type=QuotaType(row["type"]),
            memory=BucketSnapshot(
                name=(well_formed(str(row["user"])), well_formed(str(row["client_id"]))),
                kind=str(row["kind"]),
                recorded_ms=int(row["recorded_ms"]),
                figures=_figures(row),
            ),
        )


def _rates_of(rows: list[dict[str, Any]]) -> Iterator[SavedRate]:
    for row in rows:
        memory = RateMemory(
            of=RateOf(row["of"]),
            name=well_formed(str(row["name"])),
            recorded_ms=int(row["recorded_ms"]),
            figures=_figures(row),
        )
        yield SavedRate(broker=_node_id(row), memory=memory)


def _meters_of(rows: list[dict[str, Any]]) -> Iterator[SavedMeter]:
    for row in rows:
        yield SavedMeter(broker=_node_id(row), topic=well_formed(str(row["topic"])), figures=_figures(row))


def _figures(row: dict[str, Any]) -> tuple[float, ...]:
    return tuple(float(figure) for figure in row["figures"])


def _node_id(row: dict[str, Any]) -> NodeId:
    broker = row["broker"]
    return None if broker is None else int(broker)
