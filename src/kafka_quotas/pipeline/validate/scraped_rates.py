"""Byte rates scraped from brokers, and the rates from events at the same times."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.usage.job import UsageTables
from kafka_quotas.pipeline.validate.check import RateCheck

_METRIC: Final = "byte_rate"
_TYPES: Final = frozenset({"produce", "fetch"})
Bucket = tuple[str, int, str, str, str]
"""Cluster, broker, quota type, user and client-id, the last two empty where the bucket is shared across them."""


def scraped_rates(files: Sequence[Path]) -> pa.Table:
    """Read the scraped byte rates from all files of the table `metrics`.

    Raises:
        KafkaQuotasError: A file can't be read.
    """
    columns = ["ts_ms", "cluster", "broker", "quota_type", "user", "client_id", "value"]
    try:
        parts = [_read(file, columns) for file in files]
    except (OSError, pa.ArrowException) as error:
        raise KafkaQuotasError(f"cannot read the table metrics: {error}") from error
    return pa.concat_tables(parts) if parts else pa.table({name: [] for name in columns})


def _read(file: Path, columns: list[str]) -> pa.Table:
    with pq.ParquetFile(file) as opened:  # by itself, not as a part of a set: folders' names are no columns
        found = opened.read(columns=[*columns, "metric"])
    return found.filter(pc.equal(found["metric"], _METRIC)).select(columns)


def rate_checks(scrapes: pa.Table, usage: UsageTables, window: QuotaWindow) -> dict[Bucket, RateCheck]:
    """Compare the rates of each bucket that was scraped while its events were recorded.

    Our rate is over the whole seconds of the quota window before the scrape, Kafka's over nearly the same time.
    """
    entities = {_bucket(row): row["entity_id"] for row in usage.entities.to_pylist()}
    cells = _bytes_by_second(usage)
    pairs: dict[Bucket, list[tuple[float, float]]] = defaultdict(list)
    length_s = window.samples * window.window_s
    for row in scrapes.to_pylist():
        bucket = _scraped_bucket(row)
        entity = None if bucket is None else entities.get(bucket)
        if bucket is None or entity is None or row["value"] != row["value"]:
            continue
        second = row["ts_ms"] // 1000
        own = cells[entity]
        if min(own) + length_s <= second <= max(own):  # before that the window is not full, and later there is no log
            amount = sum(own.get(each, 0) for each in range(second - length_s, second))
            pairs[bucket].append((row["value"], amount / length_s))
    return {
        bucket: RateCheck(
            scrapes=len(found),
            scraped=sum(scraped for scraped, _ in found) / len(found),
            reckoned=sum(reckoned for _, reckoned in found) / len(found),
        )
        for bucket, found in pairs.items()
    }


def _bytes_by_second(usage: UsageTables) -> dict[int, dict[int, int]]:
    cells: dict[int, dict[int, int]] = defaultdict(dict)
    columns = usage.usage.select(["entity_id", "window_start_ms", "window_s", "bytes"]).to_pydict()
    for entity_id, start_ms, window_s, amount in zip(*columns.values(), strict=True):
        if window_s == 1:
            cells[entity_id][start_ms // 1000] = amount
    return cells


def _bucket(row: dict[str, Any]) -> Bucket:
    return row["cluster"], row["broker_id"], row["quota_type"], row["user"] or "", row["client_id"] or ""


def _scraped_bucket(row: dict[str, Any]) -> Bucket | None:
    """Return the bucket of a scrape, None for quotas other than bytes or a broker named by its address."""
    if row["quota_type"] not in _TYPES or not row["broker"].lstrip("-").isdecimal():
        return None
    return row["cluster"], int(row["broker"]), row["quota_type"], row["user"] or "", row["client_id"] or ""
