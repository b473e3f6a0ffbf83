"""The daemon's memory on disk: what every bucket has to remember across a restart, so that it is no amnesty.

Invariants: the file is replaced as a whole, so that it is the old one or the new one; its content is only taken where
it was written under the same windows and algorithm, for its figures mean nothing else anywhere else.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.bucket_memory import BucketMemory
from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.enforcement.policy import NodeId
from kafka_quotas.enforcement.terms import Mode
from kafka_quotas.stores.replaced_file import replace_text

VERSION: Final = 1
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
    memory: BucketMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """All buckets at one moment (ms), and the settings under which their figures mean something."""

    saved_ms: int
    settings: tuple[str, ...]
    buckets: tuple[SavedBucket, ...]


def write_state(path: Path, state: SavedState) -> None:
    """Nothing; the file holds the state. Raises `StateError` where it can't be written; then it is what it was."""
    content = json.dumps(
        {
            "v": VERSION,
            "saved_ms": state.saved_ms,
            "settings": state.settings,
            "buckets": [_bucket_to_json(bucket) for bucket in state.buckets],
        }
    )
    try:
        replace_text(path, [content])
    except OSError as error:
        raise StateError(f"can't write the state to {path}: {error.strerror or error}") from error


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
        if data["v"] != VERSION:
            raise StateError(f"the state in {path} is of version {data['v']}, not {VERSION}")
        return SavedState(
            saved_ms=int(data["saved_ms"]),
            settings=tuple(data["settings"]),
            buckets=tuple(_buckets_of(data["buckets"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"what is in {path} is no state of a daemon") from error


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


def _buckets_of(rows: list[dict[str, Any]]) -> Iterator[SavedBucket]:
    for row in rows:
        figures = tuple(float(figure) for figure in row["figures"])
        name = (str(row["user"]), str(row["client_id"]))
        yield SavedBucket(
            broker=row["broker"],
            mode=Mode(row["mode"]),
            quota_type=QuotaType(row["type"]),
            memory=BucketMemory(name=name, kind=str(row["kind"]), recorded_ms=int(row["recorded_ms"]), figures=figures),
        )
