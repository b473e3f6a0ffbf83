"""The comparison of recorded events with their own replay under the quotas in force.

Recorded requests already include the effect of throttling, which is why the open model is replayed. The broker answers
a throttled fetch empty and takes its charge back, and no log has its size: throttle times of fetches can't be compared,
but the admitted amount must fit the quota.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_quotas.pipeline.buckets.entities import NAMES, bucket_schema, columns_table
from kafka_quotas.pipeline.engine.runner import OpenEvents, RecordedEvents
from kafka_quotas.pipeline.replay.job import replay
from kafka_quotas.pipeline.replay.task import Model, ReplayPlan
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import METRICS
from kafka_quotas.pipeline.usage.job import usage
from kafka_quotas.pipeline.usage.task import UsagePlan
from kafka_quotas.pipeline.validate.check import BucketCheck, ValidatePlan, Verdict
from kafka_quotas.pipeline.validate.part_checks import (
    SCRAPED,
    SCRAPES,
    checked,
    checks_of,
    distinct_names,
    rate_rows,
    scrape_rows,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The buckets that have a quota or were throttled."""

    plan: ValidatePlan
    events: RecordedEvents
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
    seconds = events.recorded.seconds
    scrapes = events.by_client(METRICS, SCRAPED, scrape_rows)
    names = pa.concat_tables([SCRAPES.empty_table().select(NAMES), *scrapes.of_each(distinct_names)])
    used = usage(events, UsagePlan(quotas=plan.quotas, seconds=seconds, window=plan.window))
    outcomes = replay(
        events,
        ReplayPlan(
            proposals=(plan.quotas,), models=(Model.OPEN,), window=plan.window, controller_window=plan.controller_window
        ),
    )
    rates = None
    if names.num_rows:
        rates = scrapes.joined(used.seconds_of(names), partial(rate_rows, window=plan.window))
    scraped = pc.unique(pa.chunked_array([*names["user"].chunks, *names["client_id"].chunks], pa.string()))
    found = checked(
        used.by_client(partial(compared_rows, seconds=seconds, scraped=scraped.filter(pc.not_equal(scraped, "")))),
        outcomes.held(),
        rates,
        tolerance=plan.tolerance,
        limit=limit,
    )
    return Validation(
        plan=plan,
        events=events.recorded,
        count=sum(found.verdicts.values()),
        met=found.verdicts[Verdict.MET],
        missed=found.verdicts[Verdict.MISSED],
        is_capped=found.is_capped,
        is_range=found.is_range,
        buckets=tuple(checks_of(found.first)) if found.first.num_rows else (),
    )


def compared_rows(buckets: pa.Table, *, seconds: int, scraped: pa.Array) -> pa.Table:
    """Return what counts of the buckets that may be compared.

    They have a quota, were throttled, or have one of the names that were scraped.
    """
    is_scraped = pc.or_(*(pc.is_in(buckets[name], scraped) for name in ("user", "client_id")))
    is_used = pc.or_(pc.is_valid(buckets["quota"]), pc.greater(buckets["throttle_ms"], 0))
    own = buckets.filter(pc.or_(is_used, is_scraped))
    active_s = np.maximum(np.rint(own["active_share"].to_numpy() * seconds), 1).astype(np.int64)
    columns = [*(own[name] for name in _USED.names[:-1]), active_s]
    return columns_table(columns, _USED)
