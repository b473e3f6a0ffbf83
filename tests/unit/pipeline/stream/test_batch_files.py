"""What the command keeps of a batch, from the summaries of its parts."""

import json

from kafka_quotas.pipeline.stream.batch_files import Commit

FIGURES = {"events": 3, "late": 1, "unreadable": 0, "buckets": 2}


def test_a_commit_adds_up_its_parts_and_no_clock_goes_back() -> None:
    before = Commit(
        batch_id=4, stream="s", parts=2, window=(11, 1), clocks=(("c", 1, 500), ("c", 2, 900)), events=70, late=7
    )
    summaries = [
        json.dumps(FIGURES | {"clocks": [["c", 1, 700], ["c", 2, 100]]}),
        json.dumps(FIGURES | {"clocks": [["c", 1, 600], ["d", 1, 50]]}),
    ]
    assert before.after(5, summaries) == Commit(
        batch_id=5,
        stream="s",
        parts=2,
        window=(11, 1),
        clocks=(("c", 1, 700), ("c", 2, 900), ("d", 1, 50)),
        **{name: 2 * figure for name, figure in FIGURES.items()},
    )
