"""What the command knows of a batch, from the summaries of its parts."""

import json
from typing import Any

from kafka_quotas.pipeline.stream.batch import Batch

FIGURES = {"events": 3, "late": 1, "unreadable": 0, "buckets": 2}


def test_a_batch_adds_up_its_parts_and_has_the_latest_clock_of_each_broker() -> None:
    about: dict[str, Any] = {"batch_id": 5, "stream": "s", "window": [11, 1], "now_ms": 1000, "parts": 2}
    summaries = [
        json.dumps(about | FIGURES | {"clocks": [["c", 1, 700], ["c", 2, 100]]}),
        json.dumps(about | FIGURES | {"clocks": [["c", 1, 600], ["d", 1, 50]]}),
    ]
    assert Batch.of(summaries) == Batch(
        clocks={("c", 1): 700, ("c", 2): 100, ("d", 1): 50},
        **{name: 2 * figure for name, figure in FIGURES.items()},
        **about | {"window": (11, 1)},
    )
    assert Batch.of([]) is None
