"""What the command keeps of a batch, from the summaries of its parts."""

import json
from typing import Any

from kafka_quotas.pipeline.stream.batch_files import Commit

FIGURES = {"events": 3, "late": 1, "unreadable": 0, "buckets": 2}


def test_a_commit_adds_up_its_parts_and_no_clock_goes_back() -> None:
    about: dict[str, Any] = {"stream": "s", "parts": 2, "window": (11, 1), "run": 3, "folder": "1/r"}
    before = Commit(batch_id=4, clocks=(("c", 1, 500), ("c", 2, 900)), events=70, late=7, **about)
    summaries = [
        json.dumps(FIGURES | {"clocks": [["c", 1, 700], ["c", 2, 100]]}),
        json.dumps(FIGURES | {"clocks": [["c", 1, 600], ["d", 1, 50]]}),
    ]
    assert before.after(5, summaries) == Commit(
        batch_id=5,
        clocks=(("c", 1, 700), ("c", 2, 900), ("d", 1, 50)),
        **{name: 2 * figure for name, figure in FIGURES.items()},
        **about,
    )
