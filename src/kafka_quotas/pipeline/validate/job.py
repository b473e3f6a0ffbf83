"""The comparison of recorded events with their own replay under the quotas in force.

Recorded requests already include the effect of throttling, which is why the open model is replayed. The broker answers
a throttled fetch empty and takes its charge back, and no log has its size: throttle times of fetches can't be compared,
but the admitted amount must fit the quota.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.pipeline.buckets.entities import NAMES, bucket_schema, columns_table
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.replay.job import replay
from kafka_quotas.pipeline.replay.task import Model, ReplayPlan
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import METRICS
from kafka_quotas.pipeline.usage.job import usage
from kafka_quotas.pipeline.usage.tables import UsageTables
from kafka_quotas.pipeline.usage.task import UsagePlan
from kafka_quotas.pipeline.validate.check import BucketCheck, RateCheck, ValidatePlan, Verdict
from kafka_quotas.pipeline.validate.part_checks import checked, checks_of

_BUCKET: Final = pa.schema([bucket_schema().field(name) for name in NAMES])
_USED: Final = pa.schema(
    [
        *_BUCKET,
        ("quota", pa.float64()),
        ("max", pa.float64()),
        ("throttled", pa.int64()),
        ("throttle_ms", pa.int64()),
        ("active_s", pa.int64()),
    ]
)
_RATES: Final = pa.schema([*_BUCKET, ("scrapes", pa.int64()), ("scraped", pa.float64()), ("reckoned", pa.float64())])
_METRIC: Final = "byte_rate"
_SCRAPED: Final = ("ts_ms", "cluster", "broker", "quota_type", "user", "client_id", "value")
_TYPES: Final = frozenset({"produce", "fetch"})
Bucket = tuple[str, int, str, str, str]
"""Cluster, broker, quota type, user and client-id, the last two empty where the bucket is shared across them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The buckets that have a quota or were throttled."""

    plan: ValidatePlan
    seconds: int
    """Length of the recording."""
    count: int
    """Number of all buckets."""
    met: int
    """How many are within the tolerance."""
    missed: int
    """How many are not."""
    is_capped: bool
    """Whether any fetch under a quota was throttled."""
    is_range: bool
    """Whether any bucket's requests may have been throttled by other quotas as well."""
    buckets: tuple[BucketCheck, ...]
    """As many as were asked for, those that are missed first, then by name."""

    @property
    def ok(self) -> bool:
        """Whether at least one bucket was compared, and all compared ones are within the tolerance."""
        return bool(self.met) and not self.missed


def validate(events: OpenEvents, plan: ValidatePlan, *, limit: int | None = None) -> Validation:
    """Compare open events with their replay, and the rates that were scraped with those of the events.

    `limit` is the greatest number of buckets in the result, None for all.

    Raises:
        KafkaQuotasError: A file can't be read, or Spark does not start or fails.
    """
    seconds, scrapes = events.recorded.seconds, scraped_rates(events.read(METRICS, columns=[*_SCRAPED, "metric"]))
    used = usage(events, UsagePlan(quotas=plan.quotas, seconds=seconds, window=plan.window))
    outcomes = replay(
        events,
        ReplayPlan(
            proposals=(plan.quotas,), models=(Model.OPEN,), window=plan.window, controller_window=plan.controller_window
        ),
    )
    rates = rate_checks(scrapes, used, plan.window)
    names = frozenset(name for (*_, user, client_id) in rates for name in (user, client_id) if name)
    found = checked(
        used.by_client(partial(compared_rows, seconds=seconds, scraped=names)),
        outcomes.held(),
        _rates_table(rates),
        tolerance=plan.tolerance,
        limit=limit,
    )
    return Validation(
        plan=plan,
        seconds=seconds,
        count=sum(found.verdicts.values()),
        met=found.verdicts[Verdict.MET],
        missed=found.verdicts[Verdict.MISSED],
        is_capped=found.is_capped,
        is_range=found.is_range,
        buckets=tuple(checks_of(found.first)) if found.first.num_rows else (),
    )


def compared_rows(buckets: pa.Table, *, seconds: int, scraped: Collection[str]) -> pa.Table:
    """Return what counts of the buckets that may be compared.

    They have a quota, were throttled, or share a name with one that was scraped.
    """
    names = pa.array(scraped, pa.string())
    is_scraped = pc.or_(*(pc.is_in(buckets[name], names) for name in ("user", "client_id")))
    is_used = pc.or_(pc.is_valid(buckets["quota"]), pc.greater(buckets["throttle_ms"], 0))
    own = buckets.filter(pc.or_(is_used, is_scraped))
    active_s = np.maximum(np.rint(own["active_share"].to_numpy() * seconds), 1).astype(np.int64)
    columns = [*(own[name] for name in _USED.names[:-1]), active_s]
    return columns_table(columns, _USED)


def _rates_table(rates: Mapping[Bucket, RateCheck]) -> pa.Table:
    return pa.Table.from_pylist(
        [{**dict(zip(NAMES, bucket, strict=True)), **asdict(each)} for bucket, each in rates.items()], _RATES
    )


def scraped_rates(metrics: pa.Table) -> pa.Table:
    """Return the scraped byte rates in rows of the table `metrics`."""
    return metrics.filter(pc.equal(metrics["metric"], _METRIC)).select(list(_SCRAPED))


def rate_checks(scrapes: pa.Table, usage: UsageTables, window: QuotaWindow) -> dict[Bucket, RateCheck]:
    """Compare the rates of each bucket that was scraped while its events were recorded.

    Our rate is over the whole seconds of the quota window before the scrape, Kafka's over nearly the same time.
    """
    scraped = [(row, bucket) for row in scrapes.to_pylist() if (bucket := _scraped_bucket(row)) is not None]
    cells = _bytes_by_second(usage, {bucket for _, bucket in scraped})
    pairs: dict[Bucket, list[tuple[float, float]]] = defaultdict(list)
    length_s = window.samples * window.window_s
    for row, bucket in scraped:
        if bucket not in cells or row["value"] != row["value"]:
            continue
        second, own = row["ts_ms"] // 1000, cells[bucket]
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


def _bytes_by_second(usage: UsageTables, buckets: Iterable[Bucket]) -> dict[Bucket, dict[int, int]]:
    """Return the bytes of each of these buckets that was used."""
    cells: dict[Bucket, dict[int, int]] = defaultdict(dict)
    wanted = pa.Table.from_pylist([dict(zip(NAMES, each, strict=True)) for each in sorted(buckets)], _BUCKET)
    for row in usage.bytes_of(wanted, window_s=1).to_pylist() if wanted.num_rows else ():
        cells[_name(row)][row["window_start_ms"] // 1000] = row["bytes"]
    return cells


def _name(row: Mapping[str, Any]) -> Bucket:
    cluster, broker_id, kind, user, client_id = (row[name] for name in NAMES)
    return cluster, broker_id, kind, user or "", client_id or ""


def _scraped_bucket(row: dict[str, Any]) -> Bucket | None:
    """Return the bucket of a scrape, None for quotas other than bytes or a broker named by its address."""
    if row["quota_type"] not in _TYPES or not row["broker"].lstrip("-").isdecimal():
        return None
    return _name({**row, "broker_id": int(row["broker"])})
