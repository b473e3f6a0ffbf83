"""What our daemon's event log says of the clients of a run: each charge as the daemon took it.

The format is described in `docs/daemon.md`; fields that are not known are passed over, other versions too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.effective import ANONYMOUS
from kafka_quotas.loadtest.plan import EntityLoad
from kafka_quotas.loadtest.prediction import Charge
from kafka_quotas.loadtest.result import EntityKey
from kafka_quotas.loadtest.workload import Workload

VERSION: Final = 1
_TYPES: Final = {
    "produce": (Workload.PRODUCE, "bytes"),
    "fetch": (Workload.CONSUME, "bytes"),
    "controller_mutation": (Workload.MUTATE, "mutations"),
}
"""Quota types by the workload that they limit, and the field that says how much was charged."""


def logged_charges(
    folder: Path, entities: Sequence[EntityLoad], *, started_ms: int, ended_ms: int
) -> Mapping[EntityKey, Sequence[Charge]]:
    """The charges between two instants (milliseconds since the epoch) of every client, in order; times since the first.

    Clients of which nothing is logged are left out. A folder that is not there holds nothing.
    """
    keys = {_who(entity): (entity.name, entity.workload) for entity in entities}
    found: dict[EntityKey, list[Charge]] = {}
    for row in _rows(folder):
        kind = _TYPES.get(row.get("quota_type", ""))
        if kind is None or row.get("is_exempt") or not started_ms <= row["ts_ms"] <= ended_ms:
            continue
        workload, amount = kind
        key = keys.get((row["user"], row["client_id"], workload))
        if key is not None:
            found.setdefault(key, []).append(
                Charge(
                    t_ms=row["ts_ms"] - started_ms,
                    amount=row[amount],
                    throttle_ms=row["throttle_ms"],
                    broker=row["broker_id"] or 0,
                )
            )
    return found


def _who(entity: EntityLoad) -> tuple[str, str, Workload]:
    return entity.name.user or ANONYMOUS, entity.name.client_id or "", entity.workload


def _rows(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Every line of the files that are whole, in the order in which they were written."""
    for path in sorted(folder.glob("events-*.jsonl")):
        with path.open(encoding="ascii") as lines:
            for line in lines:
                row: Mapping[str, Any] = json.loads(line)
                if row.get("v") == VERSION:
                    yield row
