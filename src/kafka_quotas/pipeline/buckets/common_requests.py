"""Buckets that may have requests in common: what those that have them with a bucket add up to.

A bucket has an empty name where its requests are of any user or client-id. Two may have a request in common where
their users and their client-ids are equal, or empty in one of them. The buckets that fit one are therefore in parts by
user, in parts by client-id, and for those with an empty name anywhere: sums by form, of which there are four.

Contract: rows have `user`, `client_id` and columns to add up. A row's `group` says for whom it counts, and its `asks`
with whom it may have requests in common.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.tables.arrow import compute as pc

GROUP: Final = "group"
ASKS: Final = "asks"
_NAMES: Final = ("user", "client_id")
Sums = NDArray[np.int64]
"""A line for each column that is added up, and a column for each row."""


def sums_by_form(rows: pa.Table, figures: Sequence[str]) -> pa.Table:
    """Return the sums of figures by group and by which of the names are empty, each where it is not."""
    named = [pc.not_equal(rows[name], "") for name in _NAMES]
    keys = [GROUP, *_NAMES]
    return _summed(pa.table([rows[GROUP], *named, *(rows[each] for each in figures)], [*keys, *figures]), keys, figures)


def common_with_user(rows: pa.Table, figures: Sequence[str]) -> Sums:
    """Return for each row the sums over rows of its user that fit it, given all rows of each user."""
    given = rows.filter(pc.not_equal(rows["user"], ""))
    of_any = pc.equal(rows["client_id"], "").to_numpy()
    own, shared = (_looked_up(rows, given, [*_NAMES], figures, client_id=each) for each in (None, ""))
    return np.where(of_any, _looked_up(rows, given, ["user"], figures), own + shared)


def common_with_client_id(rows: pa.Table, figures: Sequence[str]) -> Sums:
    """Return for each row the sums over rows of its client-id, but not of its user, that fit it."""
    given = rows.filter(pc.not_equal(rows["client_id"], ""))
    of_any = pc.equal(rows["user"], "").to_numpy()
    shared = _looked_up(rows, given, [*_NAMES], figures, user="")
    return np.where(of_any, _looked_up(rows, given, ["client_id"], figures), shared)


def common_with_forms(rows: pa.Table, forms: pa.Table, figures: Sequence[str]) -> Sums:
    """Return for each row the sums over all other rows that fit it, by `sums_by_form` of all parts."""
    found = np.zeros((len(figures), rows.num_rows), np.int64)
    has_user, has_client_id = (pc.not_equal(rows[name], "").to_numpy() for name in _NAMES)
    for form in _summed(forms, [GROUP, *_NAMES], figures).to_pylist():
        is_asked = pc.equal(rows[ASKS], form[GROUP]).to_numpy()
        is_asked &= ~(has_user & form["user"]) & ~(has_client_id & form["client_id"])
        found += np.array([[form[each]] for each in figures]) * is_asked
    return found


def _looked_up(
    rows: pa.Table, given: pa.Table, names: Sequence[str], figures: Sequence[str], **fixed: str | None
) -> Sums:
    """Return for each row the sums over given rows of equal names, in place of which some may be fixed."""
    values = {name: rows[name] for name in names}
    values |= {name: pa.repeat(value, rows.num_rows) for name, value in fixed.items() if value is not None}
    keys = [GROUP, *names]
    wanted = pa.table([rows[ASKS], *values.values(), np.arange(rows.num_rows)], [*keys, "row"])
    both = wanted.join(_summed(given, keys, figures), keys, join_type="inner", use_threads=False)
    found = np.zeros((len(figures), rows.num_rows), np.int64)
    found[:, both["row"].to_numpy()] = np.array([both[each].to_numpy() for each in figures])
    return found


def _summed(rows: pa.Table, keys: Sequence[str], figures: Sequence[str]) -> pa.Table:
    found = rows.group_by(list(keys), use_threads=False).aggregate([(each, "sum") for each in figures])
    return found.rename_columns([*keys, *figures])
