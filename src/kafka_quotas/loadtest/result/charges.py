"""Charges to a client's quota for simulation and replay, from the best source that there is.

One source is our daemon's event log, with each charge as the daemon took it. `docs/reference/event-log.md` describes
its format. Unknown fields and other versions are skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest.plan.plan import ClientLoad
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.result.prediction import Charge, PredictionSource
from kafka_quotas.loadtest.result.result import ClientResult, EntityKey

VERSION: Final = 1
_TYPES: Final = {
    "produce": (Workload.PRODUCE, "bytes"),
    "fetch": (Workload.CONSUME, "bytes"),
    "controller_mutation": (Workload.MUTATE, "mutations"),
}
"""The workload that a quota type limits, and the field with the charge, by quota type."""


def logged_charges(
    folder: Path, entities: Sequence[ClientLoad], *, started_ms: int, ended_ms: int
) -> Mapping[EntityKey, Sequence[Charge]]:
    """Return the charges of every client in the event log, in order.

    Charges from before the load are among them, with times below 0: they are still in the bucket when it begins, such
    as those of a client that ran alone first. Clients without a charge are left out. A folder that does not exist has
    none.

    Args:
        folder: The folder of the event log, with one of its own for each daemon.
        entities: The clients of the load.
        started_ms: When the load began, in milliseconds since the epoch: 0 of the times that are returned.
        ended_ms: When it ended, in milliseconds since the epoch. Later charges are left out.
    """
    keys = {
        (entity.name.user or ANONYMOUS, entity.name.client_id or "", entity.workload): entity.key for entity in entities
    }
    found: dict[EntityKey, list[Charge]] = {}
    for row in _rows(folder):
        kind = _TYPES.get(row.get("quota_type", ""))
        if kind is None or row.get("is_exempt") or row["ts_ms"] > ended_ms:
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


def _rows(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yield every line of the finished files in order, of daemons in folders of their own as well."""
    for path in sorted(folder.rglob("events-*.jsonl")):
        with path.open(encoding="ascii") as lines:
            for line in lines:
                row: Mapping[str, Any] = load_json(line)
                if row.get("v") == VERSION:
                    yield row


def recorded_charges(entity: ClientResult) -> tuple[PredictionSource, list[Charge]]:
    """Return the best known charges to a client's quota, in milliseconds since the start of the load.

    They are from the daemon's log where there is one, with those from before the load. Else they are from single
    responses, else from acknowledgements with the bytes on the wire.
    """
    recorder = entity.recorder
    if entity.charges:
        return PredictionSource.EVENT_LOG, list(entity.charges)
    if recorder is None:
        return PredictionSource.ACKNOWLEDGEMENTS, []
    if len(recorder.responses):
        return PredictionSource.RESPONSES, [
            Charge(t_ms=each.t_ms, amount=each.charged, throttle_ms=each.throttle_ms, broker=each.broker)
            for each in recorder.responses
        ]
    entries = recorder.trace.entries()
    return PredictionSource.ACKNOWLEDGEMENTS, [
        Charge(t_ms=t_ms, amount=size * entity.wire_ratio) for t_ms, size in entries
    ]
