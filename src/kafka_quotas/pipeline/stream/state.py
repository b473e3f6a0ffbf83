"""The state of a stream between batches, and its copies on disk beside Spark's checkpoint.

Invariant: the state after a batch follows from the state before it and the batch's events alone, which makes a second
run of the batch give the same rows. Lateness is judged by each broker's own clock, the latest time among its events.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import ChargedClient, Charges, ClientNumbers, charges_of, numbers
from kafka_quotas.pipeline.buckets.proposal import BucketName, Proposal, ProposedQuotas
from kafka_quotas.pipeline.stream.type_state import LiveType
from kafka_quotas.pipeline.tables.schemas import LIVE

_KEPT: Final = 3
"""Number of states on disk: Spark runs no batch older than the last again."""
_VERSION: Final = 1
_LONG_AGO_MS: Final = -(2**62)
_HINT: Final = "name another --checkpoint to begin anew"

_Broker = tuple[str, int]


class LiveState:
    """The live state of all quota types."""

    def __init__(self, quotas: Proposal, *, lateness_ms: int, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._lateness_ms = lateness_ms
        self._window = window
        self._types = {each: LiveType(each, ProposedQuotas(quotas, each), window) for each in QuotaType}
        self._clocks_ms: dict[_Broker, int] = {}

    def take(self, events: pa.Table, *, batch_id: int) -> pa.Table:
        """Apply a batch of events to the state and return its rows of `live`."""
        columns: dict[str, list[Any]] = {name: [] for name in LIVE.column_names}
        seen_ms: dict[_Broker, int] = {}
        numbered = ClientNumbers()
        of_event, throttle_ms = numbered.of(events), numbers(events["throttle_ms"])
        clients = numbered.clients
        for of_type in charges_of(events, of_event, lambda _: True):
            _, charges = of_type.in_order(np.zeros(of_type.events.size, dtype=np.int32), row_count=1)
            self._see(charges, clients, seen_ms)
            live, late = self._types[charges.quota_type], self._late(charges, clients)
            for name, values in live.take(charges, clients, throttle_ms=throttle_ms[charges.events], late=late).items():
                columns[name] += values
        for broker, at_ms in seen_ms.items():
            self._clocks_ms[broker] = max(at_ms, self._clocks_ms.get(broker, _LONG_AGO_MS))
        columns["batch_id"] = [batch_id] * len(columns["ts_ms"])
        return pa.table(columns, schema=LIVE.arrow_schema())

    def save(self, folder: Path, *, batch_id: int) -> None:
        """Save the state after this batch to the folder, synced to disk, and delete the oldest copies.

        Raises:
            OSError: The folder can't be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "version": _VERSION,
            "window": [self._window.samples, self._window.window_s],
            "clocks": [[*broker, at_ms] for broker, at_ms in self._clocks_ms.items()],
            "buckets": {each.value: live.buckets for each, live in self._types.items()},
        }
        arrays = {
            f"{each.value}{name}": array for each, live in self._types.items() for name, array in live.arrays().items()
        }
        temporary = folder / ".new"
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(_state_file(folder, batch_id))
        for number in _saved_batches(folder)[:-_KEPT]:
            _state_file(folder, number).unlink()

    def load(self, folder: Path, *, before: int) -> None:
        """Load the state after the last batch before this one, if there is any.

        Raises:
            KafkaQuotasError: The folder lacks the state, or it can't be read.
        """
        numbers = [number for number in _saved_batches(folder) if number < before]
        if not numbers:
            if before > 0:
                raise KafkaQuotasError(f"{folder} lacks the state of batch {before - 1}", hint=_HINT)
            return
        path = _state_file(folder, numbers[-1])
        try:
            with np.load(path, allow_pickle=False) as arrays:
                self._restore(json.loads(str(arrays["about"])), arrays)
        except (OSError, ValueError, KeyError) as error:
            raise KafkaQuotasError(f"cannot read {path}: {error}", hint=_HINT) from error

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        if about["version"] != _VERSION or about["window"] != [self._window.samples, self._window.window_s]:
            raise ValueError("it was written with another quota window or by another version")
        self._clocks_ms = {(cluster, broker_id): at_ms for cluster, broker_id, at_ms in about["clocks"]}
        for each, live in self._types.items():
            own = {name.removeprefix(each.value): arrays[name] for name in arrays if name.startswith(f"{each.value}_")}
            live.restore((BucketName(*bucket) for bucket in about["buckets"][each.value]), own)

    def _see(self, charges: Charges, clients: Sequence[ChargedClient], seen_ms: dict[_Broker, int]) -> None:
        """Note the latest time of each broker's events in this batch."""
        latest_ms = np.full(len(clients), _LONG_AGO_MS)
        np.maximum.at(latest_ms, charges.clients, charges.times_ms)
        for client, at_ms in zip(clients, latest_ms.tolist(), strict=True):
            seen_ms[client[:2]] = max(at_ms, seen_ms.get(client[:2], _LONG_AGO_MS))

    def _late(self, charges: Charges, clients: Sequence[ChargedClient]) -> NDArray[np.bool_]:
        """Return which charges are more than the lateness older than their broker's clock before this batch."""
        horizons = [self._clocks_ms.get(each[:2], _LONG_AGO_MS) - self._lateness_ms for each in clients]
        late: NDArray[np.bool_] = charges.times_ms < np.array(horizons, dtype=np.int64)[charges.clients]
        return late


def _state_file(folder: Path, batch_id: int) -> Path:
    return folder / f"batch={batch_id}.npz"


def _saved_batches(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("batch=")) for path in folder.glob("batch=*.npz"))
