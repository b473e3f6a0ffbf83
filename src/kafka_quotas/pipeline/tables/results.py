"""The result tables: `usage`, `usage_profile`, `whatif`, `throttle_spans`, `recommendation`.

Their keys are names, which are the same in every run. A run replaces the days that it has rows of, and leaves all
others. Between jobs rows have times in ms since 1970, and empty names where clients share a bucket: `TableSchema`s are
what is written (`engine.sql` has the way from one to the other).

Schemas of kernels: `USED` has a row per bucket with its windows in a list, `REPLAYED` one per proposal, model and
bucket with its spans.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.tables.schemas import NAMES, THROTTLE_SPANS, USAGE, USAGE_PROFILE, WHATIF, TableSchema

_OF_RUN: Final = ("dt", "quotas", "run_id")
"""Columns that all rows of a run and day have in common."""


def fields_of(table: TableSchema, *, without: Sequence[str] = ()) -> list["pa.Field[Any]"]:
    """Return the columns of a table between jobs: times in ms, and nothing about the run.

    Columns may be left out by their names, such as those of the bucket in whose row the others are a list.
    """
    left_out = {*_OF_RUN, *without}
    return [
        pa.field(f"{each.name.removesuffix('_at')}_ms", pa.int64())
        if pa.types.is_timestamp(each.type)
        else each.with_nullable(nullable=True)
        for each in table.arrow_schema()
        if each.name not in left_out
    ]


WINDOW: Final = pa.schema(fields_of(USAGE, without=NAMES))
"""The columns of one window."""
SPAN: Final = pa.schema(fields_of(THROTTLE_SPANS, without=("scenario", "model", *NAMES)))
"""The columns of one throttle span."""
USED: Final = pa.schema([*fields_of(USAGE_PROFILE), ("windows", pa.list_(pa.struct(list(WINDOW))))])
"""What usage knows of a bucket: limit, profile, sums over all time, demand (null if none is asked), and its windows."""
DEMAND: Final = list(USED)[USED.get_field_index("demand") : -1]
"""The columns of a demand."""
REPLAYED: Final = pa.schema([("proposal", pa.int32()), *fields_of(WHATIF), ("spans", pa.list_(pa.struct(list(SPAN))))])
"""What a replay knows of a bucket under a proposal, whose place in the plan is `proposal`."""


def list_column(rows: NDArray[np.integer[Any]], parts: Sequence[pa.Table], count: int) -> pa.Array:
    """Return a list of structs for each of some rows.

    Args:
        rows: The row that each struct is of.
        parts: The structs, which keep their order within a row.
        count: The number of rows.
    """
    structs = pa.concat_tables(parts).to_struct_array().combine_chunks()
    order = np.argsort(rows, kind="stable")
    offsets = np.searchsorted(rows[order], np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), structs.take(pa.array(order)))
