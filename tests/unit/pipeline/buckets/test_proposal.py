"""What buckets that may have requests in common add up to."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from kafka_quotas.pipeline.buckets.proposal import common_requests
from kafka_quotas.pipeline.engine.sql import DuckTables

FIGURES = ("n", "ms")
Row = tuple[str, str, str]


def fits(own: Row, other: Row) -> bool:
    return own[0] != other[0] and all(a == b or not a or not b for a, b in zip(own[1:], other[1:], strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_all_buckets_that_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    every = [*product("ab", ("", "u", "v", "w"), ("", "x", "y"))]
    buckets = [every[place] for place in random.permutation(len(every))[: random.integers(1, len(every))]]
    figures = random.integers(0, 9, (len(FIGURES), len(buckets)))
    parts, users, client_ids = zip(*buckets, strict=True)
    known = {"part": parts, "asks": ["b" if part == "a" else "a" for part in parts]}
    names = {"user": users, "client_id": client_ids}
    tables = DuckTables()
    rows = tables.add("rows", pa.table({**known, **names, **dict(zip(FIGURES, figures, strict=True))}))
    found = {
        (row["asks"], row["user"], row["client_id"]): [row[each] for each in FIGURES]
        for row in tables.query(common_requests(rows, FIGURES)).to_pylist()
    }
    for own, asks in zip(buckets, known["asks"], strict=True):
        expected = sum((figures[:, place] * fits(own, other) for place, other in enumerate(buckets)), np.zeros(2, int))
        assert found.get((asks, *own[1:]), [0, 0]) == expected.tolist()
