"""The comparison of recorded events with their own replay under the quotas in force.

Recorded requests already include the effect of throttling, which is why the open model is replayed. The broker answers
a throttled fetch empty and takes its charge back, and no log has its size: throttle times of fetches can't be compared,
but the admitted amount must fit the quota. All comparisons are by SQL: counts come here, and the buckets that are asked
for.
"""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.pipeline.buckets.sharing import common_requests
from kafka_quotas.pipeline.engine.events import Events, RecordedEvents
from kafka_quotas.pipeline.engine.sql import SqlTables
from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay
from kafka_quotas.pipeline.jobs.usage.job import WINDOWS_S, UsagePlan, usage
from kafka_quotas.pipeline.jobs.validate.check import BucketCheck, BucketVerdict, ValidatePlan
from kafka_quotas.pipeline.tables.results import KEY
from kafka_quotas.pipeline.tables.schemas import METRICS

SLACK_SHARE: Final = 0.01
"""Share of the bucket's active time below which a difference of throttle times counts as none."""


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


def validate(events: Events, plan: ValidatePlan, *, limit: int | None = None) -> Validation:
    """Compare open events with their replay, and the rates that were scraped with those of the events.

    `limit` is the greatest number of buckets in the result, None for all.

    Raises:
        KafkaQuotasError: A file can't be read, or Spark does not start or fails.
    """
    tables, seconds = events.tables, events.recorded.seconds
    scrapes = tables.define("scrapes", scraped_rates(events.table(METRICS)), keep=True)
    is_scraped = tables.query(f"SELECT * FROM {scrapes} LIMIT 1").num_rows > 0
    windows_s = (1, *WINDOWS_S) if is_scraped else WINDOWS_S
    used = usage(events, UsagePlan(quotas=plan.quotas, seconds=seconds, window=plan.window, windows_s=windows_s))
    replayed = replay(
        events,
        ReplayPlan(
            proposals=(plan.quotas,), models=(Model.OPEN,), window=plan.window, controller_window=plan.controller_window
        ),
    )
    rates = tables.define("rates", compared_rates(tables, scrapes, used.windows, plan.window))
    buckets = f"SELECT *, greatest(CAST(round(active_share * {seconds}) AS BIGINT), 1) AS active_s FROM {used.buckets}"
    checks = checked(tables, f"({buckets}) AS used", replayed.rows, rates, tolerance=plan.tolerance)
    figures = tables.query(
        f"""SELECT count(*) AS buckets,
            {", ".join(_count(f"verdict = '{each.value}'", each.name) for each in BucketVerdict)},
            {_count("is_capped AND throttle_ms > 0", "capped")}, {_count("is_compared AND others_ms > 0", "ranged")}
        FROM {checks}"""
    ).to_pylist()[0]
    return Validation(
        plan=plan,
        events=events.recorded,
        count=figures["buckets"],
        met=figures[BucketVerdict.MET.name],
        missed=figures[BucketVerdict.MISSED.name],
        is_capped=figures["capped"] > 0,
        is_range=figures["ranged"] > 0,
        buckets=tuple(map(_check, first_checks(tables, checks, limit).to_pylist())),
    )


def _count(condition: str, name: str) -> str:
    return f"count(*) FILTER (WHERE {condition}) AS {name}"


def scraped_rates(metrics: str) -> str:
    """Return a query for the scraped byte rates of brokers that are named by their ids."""
    return f"""SELECT cluster, TRY_CAST(broker AS INT) AS broker_id, quota_type, user, client_id, ts_ms, value
        FROM {metrics} WHERE metric = 'byte_rate' AND quota_type IN ('produce', 'fetch') AND NOT isnan(value)
            AND CAST(TRY_CAST(broker AS INT) AS STRING) = broker"""


def compared_rates(tables: SqlTables, scrapes: str, windows: str, window: QuotaWindow) -> str:
    """Return a query for the rates of each bucket that was scraped while its events were recorded.

    Our rate is over the whole seconds of the quota window before the scrape, Kafka's over nearly the same time.
    """
    length_s = window.samples * window.window_s
    seconds = f"SELECT {KEY}, window_start_ms, bytes FROM {windows} WHERE window_s = 1"
    # before the first of these the window is not full, and after the last there is no log
    within = f"""SELECT {KEY}, value, CAST(floor(ts_ms / 1000) AS BIGINT) * 1000 AS scraped_ms FROM {scrapes}
        JOIN (SELECT {KEY}, min(window_start_ms) + {length_s * 1000} AS first_ms, max(window_start_ms) AS last_ms
            FROM ({seconds}) AS seconds GROUP BY {KEY}) AS recorded USING ({KEY})
        WHERE ts_ms >= first_ms AND ts_ms < last_ms + 1000"""
    kept = tables.define("scraped", within, keep=True)
    ages = tables.add("ages", pa.table({"age_s": range(1, length_s + 1)}))
    return f"""SELECT {KEY}, scrapes, scraped, coalesce(amount, 0) / {length_s} / scrapes AS reckoned
        FROM (SELECT {KEY}, count(*) AS scrapes, avg(value) AS scraped FROM {kept} GROUP BY {KEY}) AS of_scrapes
        LEFT JOIN (SELECT {KEY}, sum(bytes) AS amount
            FROM (SELECT {KEY}, scraped_ms - age_s * 1000 AS window_start_ms FROM {kept} CROSS JOIN {ages}) AS wanted
            JOIN ({seconds}) AS seconds USING ({KEY}, window_start_ms) GROUP BY {KEY}) AS of_events USING ({KEY})"""


def checked(tables: SqlTables, used: str, replayed: str, rates: str, *, tolerance: float) -> str:
    """Name the buckets that may be compared, with their verdicts.

    Throttle times hold within the tolerance, and where the difference is too small to matter.

    Args:
        tables: Where the rows are.
        used: Names, `quota`, `max`, `active_s`, `throttled` and `throttle_ms` of the buckets that were used.
        replayed: Their replay, `throttled_n` and `throttle_ms`.
        rates: Rates of the buckets with scrapes.
        tolerance: Tolerated difference by the observed figure, from 0.
    """
    broker = "concat(CAST(broker_id AS STRING), CASE WHEN quota_type {} 'request' THEN ' time ' ELSE ' ' END, cluster)"
    given = "CASE WHEN quota IS NULL THEN 0 WHEN quota_type = 'fetch' THEN {} ELSE {} END"
    both = tables.define(
        "both",
        f"""SELECT *, {broker.format("=")} AS part, {broker.format("<>")} AS asks,
            CASE WHEN quota IS NULL THEN 0 ELSE 1 END AS given,
            {given.format("throttled", "own_n")} AS given_n, {given.format("throttle_ms", "own_ms")} AS given_ms
        FROM (SELECT {KEY}, quota, max AS peak, active_s, throttled, throttle_ms, coalesce(own_n, 0) AS own_n,
                coalesce(own_ms, 0) AS own_ms, coalesce(scrapes, 0) AS scrapes, scraped, reckoned
            FROM {used} LEFT JOIN {rates} USING ({KEY})
                LEFT JOIN (SELECT {KEY}, throttled_n AS own_n, throttle_ms AS own_ms FROM {replayed}) AS replayed
                USING ({KEY})) AS known
        WHERE quota IS NOT NULL OR throttle_ms > 0 OR scrapes > 0""",
        keep=True,
    )
    common = common_requests(both, ("given", "given_n", "given_ms"))
    others = f"""SELECT {both}.*, coalesce(others.given, 0) AS others, coalesce(others.given_n, 0) AS others_n,
            coalesce(others.given_ms, 0) AS others_ms, quota_type = 'fetch' AND quota IS NOT NULL AS is_capped,
            CASE WHEN quota IS NULL THEN throttle_ms > 0 ELSE quota_type <> 'fetch' END AS is_compared
        FROM {both} LEFT JOIN ({common}) AS others USING (asks, user, client_id)"""
    apart = f"""SELECT *, abs(least(greatest(throttle_ms, own_ms), own_ms + others_ms) - throttle_ms) AS apart_ms,
            is_capped AND peak > quota * {1 + tolerance!r} AS is_exceeded,
            scrapes > 0 AND abs(reckoned - scraped) > {tolerance!r} * scraped AS is_rate_off
        FROM ({others}) AS others_too
        WHERE quota IS NOT NULL OR scrapes > 0 OR (throttle_ms > 0 AND others = 0)"""
    is_off = f"is_compared AND apart_ms > {SLACK_SHARE} * active_s * 1000 AND apart_ms > {tolerance!r} * throttle_ms"
    return tables.define(
        "checks",
        f"""SELECT *, CASE
            WHEN ({is_off}) OR coalesce(is_rate_off, false) OR is_exceeded THEN '{BucketVerdict.MISSED.value}'
            WHEN is_compared OR is_capped OR scrapes > 0 THEN '{BucketVerdict.MET.value}'
            ELSE '{BucketVerdict.OPEN.value}' END AS verdict
        FROM ({apart}) AS apart""",
        keep=True,
    )


def first_checks(tables: SqlTables, checks: str, limit: int | None) -> pa.Table:
    """Return the first buckets by the fields of `BucketCheck`, missed ones first, then by name."""
    if_compared = ", ".join(
        f"CASE WHEN is_compared THEN {sql} END AS {name}"
        for name, sql in {
            "simulated_throttle_ms": "own_ms",
            "simulated_at_most_ms": "own_ms + others_ms",
            "throttle_error": f"CASE WHEN apart_ms = 0 THEN 0.0E0 ELSE {_ratio('apart_ms', 'throttle_ms')} END",
            "simulated_throttled": "own_n",
            "simulated_throttled_at_most": "own_n + others_n",
        }.items()
    )
    rate_error = f"CASE WHEN scraped = reckoned THEN 0.0E0 ELSE {_ratio('abs(reckoned - scraped)', 'scraped')} END"
    return tables.query(
        f"""SELECT {KEY}, quota, peak, throttle_ms AS observed_throttle_ms,
            throttled AS observed_throttled, {if_compared}, scrapes, scraped AS scraped_rate, reckoned AS reckoned_rate,
            CASE WHEN scrapes > 0 THEN {rate_error} END AS rate_error, verdict
        FROM {checks} ORDER BY CASE WHEN verdict = '{BucketVerdict.MISSED.value}' THEN 0 ELSE 1 END, {KEY}
        {"" if limit is None else f"LIMIT {limit}"}""",
        is_long=limit is None,
    )


def _ratio(part: str, whole: str) -> str:
    return f"CASE WHEN {whole} <> 0 THEN CAST({part} AS DOUBLE) / {whole} END"


def _check(row: dict[str, Any]) -> BucketCheck:
    own: dict[str, Any] = {
        "user": row["user"] or None,
        "client_id": row["client_id"] or None,
        "limit": row.pop("quota"),
    }
    own |= {"quota_type": QuotaType(row["quota_type"]), "verdict": BucketVerdict(row["verdict"])}
    return BucketCheck(**row | own)
