"""Events from the future: quarantined, for a broker's clock follows its latest event, and all after one would be late.

Invariant: a batch that is run again after a crash refuses the same events. It is judged by the time at which it was
first taken, which is kept beside its state.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa

from kafka_quotas.pipeline.stream.lines import RAW, REASON
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.stores.files.atomic_write import replace_text

AHEAD_MS: Final = 60_000
"""How far the clocks of brokers may be ahead of this machine's."""
_KEPT: Final = 3


def taken_ms(folder: Path, batch_id: int, clock_ms: Callable[[], int]) -> int:
    """Return when a batch was first taken, and keep the time of a new one in the folder.

    Raises:
        OSError: The folder can't be written.
    """
    path = folder / f"batch={batch_id}.time"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(path, [str(clock_ms())])
        (folder / f"batch={batch_id - _KEPT}.time").unlink(missing_ok=True)
    return int(path.read_text(encoding="ascii"))


def without_future(charges: pa.Table, now_ms: int) -> tuple[pa.Table, pa.Table]:
    """Return the charges that can have been by now, and the others as rows of `raw` and `reason`."""
    is_future = pc.greater(charges["ts_ms"], now_ms + AHEAD_MS)
    refused = charges.filter(is_future).to_pylist()
    reasons = [f"its time is {(row['ts_ms'] - now_ms) / 1000:,.0f} s in the future" for row in refused]
    rows = {RAW: [json.dumps(row, default=str) for row in refused], REASON: reasons}
    return charges.filter(pc.invert(is_future)), pa.table(rows, pa.schema([(RAW, pa.string()), (REASON, pa.string())]))
