"""The rates that were scraped, and those of the events over the same time, of many buckets on columns."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.pipeline.buckets.entities import NAMES, bucket_schema, columns_table
from kafka_quotas.pipeline.tables.arrow import compute as pc

_BUCKET: Final = [bucket_schema().field(name) for name in NAMES]
SCRAPED: Final = ("ts_ms", "cluster", "broker", "quota_type", "user", "client_id", "metric", "value")
"""Columns of `metrics` that scrapes are taken from."""
SCRAPES: Final = pa.schema([*_BUCKET, ("ts_ms", pa.int64()), ("value", pa.float64())])
RATES: Final = pa.schema([*_BUCKET, ("scrapes", pa.int64()), ("scraped", pa.float64()), ("reckoned", pa.float64())])
"""Names of buckets, empty where clients share them, the number of scrapes, and averages over these in bytes/s."""
_METRIC: Final = "byte_rate"
_TYPES: Final = ("produce", "fetch")
_BY_ID: Final = r"^-?[0-9]+$"
_SECONDS: Final = 1 << 40
"""More seconds than any time has since 1970."""


def scrape_rows(metrics: pa.Table) -> pa.Table:
    """Return the scraped byte rates of brokers that are named by their ids, given rows of `metrics`."""
    is_rate = pc.and_(pc.equal(metrics["metric"], _METRIC), pc.is_in(metrics["quota_type"], pa.array(_TYPES)))
    is_known = pc.and_(pc.match_substring_regex(metrics["broker"], _BY_ID), pc.invert(pc.is_nan(metrics["value"])))
    own = metrics.filter(pc.and_(is_rate, is_known))
    return columns_table(
        [own["broker"].cast(pa.int32()) if name == "broker_id" else own[name] for name in SCRAPES.names], SCRAPES
    )


def distinct_names(scrapes: pa.Table) -> pa.Table:
    """Return the names of the buckets that were scraped."""
    return scrapes.group_by(list(NAMES)).aggregate([])


def rate_rows(scrapes: pa.Table, cells: pa.Table, *, window: QuotaWindow) -> pa.Table:
    """Return the rates of each bucket that was scraped while its events were recorded.

    Our rate is over the whole seconds of the quota window before the scrape, Kafka's over nearly the same time.

    Args:
        scrapes: Rows as in `SCRAPES`.
        cells: Names, `window_start_ms` and `bytes` of each second, once each.
        window: The brokers' window.
    """
    length_s = window.samples * window.window_s
    known = distinct_names(cells)
    known = known.append_column("number", pa.array(np.arange(known.num_rows)))
    cells, scrapes = (each.join(known, list(NAMES), join_type="inner", use_threads=False) for each in (cells, scrapes))
    scrapes = scrapes.sort_by([(name, "ascending") for name in ("number", "ts_ms", "value")])
    keys = cells["number"].to_numpy() * _SECONDS + cells["window_start_ms"].to_numpy() // 1000
    order = np.argsort(keys)
    keys, sums = keys[order], np.append(0, np.cumsum(cells["bytes"].to_numpy()[order]))
    numbers, seconds = scrapes["number"].to_numpy(), scrapes["ts_ms"].to_numpy() // 1000
    starts, ends = (np.searchsorted(keys, numbers * _SECONDS + each) for each in (0, _SECONDS))
    # before the first of these the window is not full, and after the last there is no log
    at = numbers * _SECONDS + seconds
    is_recorded = (keys[starts] + length_s <= at) & (at <= keys[ends - 1])
    at, numbers = at[is_recorded], numbers[is_recorded]
    amounts = sums[np.searchsorted(keys, at)] - sums[np.searchsorted(keys, at - length_s)]
    found, firsts, counts = np.unique(numbers, return_index=True, return_counts=True)
    values = scrapes["value"].to_numpy()[is_recorded]
    averages: list[Any] = [
        np.add.reduceat(each, firsts) / counts if counts.size else [] for each in (values, amounts / length_s)
    ]
    names = known.select(NAMES).take(pa.array(found))
    return columns_table([*names.columns, counts, *averages], RATES)
