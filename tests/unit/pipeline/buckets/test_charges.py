"""What buckets that may have requests in common add up to, in parts by user and by client-id."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from kafka_quotas.pipeline.buckets.charges import (
    ASKS,
    GROUP,
    common_with_client_id,
    common_with_forms,
    common_with_user,
    sums_by_form,
)

FIGURES = ("n", "ms")
Row = tuple[int, str, str]


def fits(own: Row, other: Row) -> bool:
    return own[0] != other[0] and all(a == b or not a or not b for a, b in zip(own[1:], other[1:], strict=True))


def in_parts(rows: pa.Table, name: str) -> list[pa.Table]:
    return [
        rows.filter(pa.array([each == value for each in rows[name].to_pylist()]))
        for value in set(rows[name].to_pylist())
    ]


@pytest.mark.parametrize("seed", range(20))
def test_sums_in_parts_are_those_of_all_buckets_that_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    every = [*product((0, 1), ("", "u", "v", "w"), ("", "a", "b"))]
    buckets = [every[place] for place in random.permutation(len(every))[: random.integers(1, len(every))]]
    figures = random.integers(0, 9, (len(FIGURES), len(buckets)))
    groups, users, client_ids = zip(*buckets, strict=True)
    known = {GROUP: groups, ASKS: [1 - group for group in groups], "user": users, "client_id": client_ids}
    rows = pa.table({**known, **dict(zip(FIGURES, figures, strict=True))})
    halves = [rows.slice(0, len(buckets) // 2), rows.slice(len(buckets) // 2)]
    forms = pa.concat_tables([sums_by_form(each, FIGURES) for each in halves])
    found = dict.fromkeys(buckets, np.zeros(len(FIGURES), np.int64))
    steps = [(each, common_with_user(each, FIGURES)) for each in in_parts(rows, "user")]
    steps += [(each, common_with_client_id(each, FIGURES)) for each in in_parts(rows, "client_id")]
    steps += [(each, common_with_forms(each, forms, FIGURES)) for each in halves]
    for part, sums in steps:
        names = zip(*(part[name].to_pylist() for name in (GROUP, "user", "client_id")), strict=True)
        for place, name in enumerate(names):
            found[name] = found[name] + sums[:, place]
    for own in buckets:
        expected = sum(figures[:, place] * fits(own, other) for place, other in enumerate(buckets))
        assert found[own].tolist() == np.asarray(expected).tolist()
