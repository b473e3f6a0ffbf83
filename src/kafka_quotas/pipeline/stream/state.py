"""The state of one part of a stream between batches, and its form as bytes.

Invariant: the state after a batch follows from the state before it and the batch's charges alone. Lateness is judged by
each broker's own clock, the latest time among its events of earlier batches, in whatever part they are.
"""

import json
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import BucketName, Proposal, ProposedQuotas
from kafka_quotas.pipeline.stream.bucket_charges import BucketCharges
from kafka_quotas.pipeline.stream.type_state import LONG_AGO_MS, Broker, LiveType
from kafka_quotas.pipeline.tables.schemas import LIVE


class PartState:
    """The live state of the buckets in one part, of all quota types."""

    def __init__(self, quotas: Proposal, *, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._types = {each: LiveType(each, ProposedQuotas(quotas, each), window) for each in QuotaType}

    def take(self, charges: Iterable[BucketCharges], horizons_ms: Mapping[Broker, int], *, batch_id: int) -> pa.Table:
        """Apply the charges of a batch to the state and return its rows of `live`.

        `horizons_ms` is the time by broker before which a charge is late.
        """
        columns: dict[str, list[Any]] = {name: [] for name in LIVE.column_names}
        of_type: dict[QuotaType, list[BucketCharges]] = {each: [] for each in QuotaType}
        for each in charges:
            of_type[each.quota_type].append(each)
        for quota_type, found in of_type.items():
            if found:
                for name, values in self._types[quota_type].take(found, horizons_ms).items():
                    columns[name] += values
        columns["batch_id"] = [batch_id] * len(columns["ts_ms"])
        return pa.table(columns, schema=LIVE.arrow_schema())

    def clocks_ms(self) -> dict[Broker, int]:
        """Return the latest time of each broker in this part."""
        latest: dict[Broker, int] = {}
        for live in self._types.values():
            for broker, at_ms in live.clocks_ms().items():
                latest[broker] = max(at_ms, latest.get(broker, LONG_AGO_MS))
        return latest

    def dump(self) -> bytes:
        """Return the state as bytes."""
        about = {each.value: live.buckets for each, live in self._types.items()}
        arrays = {
            f"{each.value}{name}": array for each, live in self._types.items() for name, array in live.arrays().items()
        }
        file = BytesIO()
        np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
        return file.getvalue()

    def load(self, content: bytes) -> None:
        """Restore a state of the same quota window from its bytes, under today's quotas."""
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            for each, live in self._types.items():
                own = {
                    name.removeprefix(each.value): arrays[name] for name in arrays if name.startswith(f"{each.value}_")
                }
                live.restore((BucketName(*bucket) for bucket in about[each.value]), own)
