"""The comparison of recorded events with their own replay under the quotas in force.

Recorded requests already include the effect of throttling, which is why the open model is replayed. The broker answers
a throttled fetch empty and takes its charge back, and no log has its size: throttle times of fetches can't be compared,
but the admitted amount must fit the quota. A broker answers a request under two quotas with the longer of two throttle
times. The expected sum is therefore a range: at least that of the bucket's own quota alone, at most that of all quotas
that its requests may fall under.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.pipeline.buckets.proposal import Proposal, common_requests
from kafka_quotas.pipeline.engine.events import Events, RecordedEvents
from kafka_quotas.pipeline.engine.sql import SqlTables
from kafka_quotas.pipeline.tables.schemas import KEY, METRICS

if TYPE_CHECKING:  # the schema of the command's document needs this module, and no Arrow
    import pyarrow as pa

SLACK_SHARE: Final = 0.01
"""Share of the bucket's active time below which a difference of throttle times counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatePlan:
    """The quotas that were in force, the brokers' windows, and the tolerance."""

    quotas: Proposal
    tolerance: float = 0.1
    """Tolerated difference by the observed figure, from 0."""
    window: QuotaWindow = DEFAULT_WINDOW
    controller_window: QuotaWindow = DEFAULT_WINDOW

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise UsageError(f"the tolerance must be 0 or more, not {self.tolerance}", hint="--tolerance 0.1 is 10 %")


class BucketVerdict(StrEnum):
    """The result of a comparison."""

    MET = "met"
    MISSED = "missed"
    OPEN = "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketCheck:
    """All comparisons of one bucket at one broker, with rates in the unit of the quota key.

    The counts of throttled requests are reported but not judged: at a rate close to the quota a request is throttled
    for a millisecond or not at all, and counts as much as one that waits for seconds.
    """

    cluster: str
    broker_id: int
    quota_type: QuotaType
    user: str | None
    client_id: str | None
    limit: float | None
    peak: float
    """Largest rate over the quota window."""
    observed_throttle_ms: int
    simulated_throttle_ms: int | None
    """Lower end of the expected sum in ms, None if throttle times can't be compared."""
    simulated_at_most_ms: int | None
    throttle_error: float | None
    """Difference by the observed sum, from 0, None if only the replay throttles or they can't be compared."""
    observed_throttled: int
    simulated_throttled: int | None
    simulated_throttled_at_most: int | None
    scrapes: int
    """The scrapes with a rate."""
    scraped_rate: float | None
    """Average of the broker's own `byte_rate`, None without scrapes."""
    reckoned_rate: float | None
    """Average of our rate from the events over the same scrapes."""
    rate_error: float | None
    """Difference by the scraped average, from 0, None without scrapes or if only the events show traffic."""
    verdict: BucketVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The buckets that have a quota or were throttled."""

    DOCUMENT: ClassVar = "events=events.count events.seconds quotas=plan.quotas.name plan.tolerance ok buckets"
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
    """
    from kafka_quotas.pipeline.jobs.replay import Model, ReplayPlan, replay  # noqa: PLC0415 - loads the kernels
    from kafka_quotas.pipeline.jobs.usage.job import WINDOWS_S, UsagePlan, usage  # noqa: PLC0415 - as above

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
    conditions = {
        "count": "true",
        "met": f"verdict = '{BucketVerdict.MET}'",
        "missed": f"verdict = '{BucketVerdict.MISSED}'",
        "is_capped": "is_capped AND throttle_ms > 0",
        "is_range": "is_compared AND others_ms > 0",
    }
    counts = ", ".join(f"count(*) FILTER (WHERE {sql}) AS {name}" for name, sql in conditions.items())
    (found,) = tables.query(f"SELECT {counts} FROM {checks}").to_pylist()
    found |= {name: found[name] > 0 for name in ("is_capped", "is_range")}
    first = tuple(map(_check, first_checks(tables, checks, limit).to_pylist()))
    return Validation(plan=plan, events=events.recorded, buckets=first, **found)


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
    ages = ", ".join(f"({age_s})" for age_s in range(1, length_s + 1))
    return f"""SELECT {KEY}, scrapes, scraped, coalesce(amount, 0) / {length_s} / scrapes AS reckoned
        FROM (SELECT {KEY}, count(*) AS scrapes, avg(value) AS scraped FROM {kept} GROUP BY {KEY}) AS of_scrapes
        LEFT JOIN (SELECT {KEY}, sum(bytes) AS amount
            FROM (SELECT {KEY}, scraped_ms - age_s * 1000 AS window_start_ms FROM {kept}
                CROSS JOIN (VALUES {ages}) AS ages (age_s)) AS wanted
            JOIN ({seconds}) AS seconds USING ({KEY}, window_start_ms) GROUP BY {KEY}) AS of_events USING ({KEY})"""


def checked(tables: SqlTables, used: str, replayed: str, rates: str, *, tolerance: float) -> str:
    """Name the buckets that may be compared, with their verdicts.

    Throttle times hold within the tolerance, and where the difference is too small to matter. `used` are the buckets,
    `replayed` is their replay, and `rates` are those of buckets with scrapes.
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
            WHEN ({is_off}) OR coalesce(is_rate_off, false) OR is_exceeded THEN '{BucketVerdict.MISSED}'
            WHEN is_compared OR is_capped OR scrapes > 0 THEN '{BucketVerdict.MET}'
            ELSE '{BucketVerdict.OPEN}' END AS verdict
        FROM ({apart}) AS apart""",
        keep=True,
    )


def first_checks(tables: SqlTables, checks: str, limit: int | None) -> "pa.Table":
    """Return the first buckets by the fields of `BucketCheck`, missed ones first, then by name."""
    if_compared = {
        "simulated_throttle_ms": "own_ms",
        "simulated_at_most_ms": "own_ms + others_ms",
        "throttle_error": _error("apart_ms", "throttle_ms"),
        "simulated_throttled": "own_n",
        "simulated_throttled_at_most": "own_n + others_n",
    }
    simulated = ", ".join(f"CASE WHEN is_compared THEN {sql} END AS {name}" for name, sql in if_compared.items())
    return tables.query(
        f"""SELECT {KEY}, quota, peak, throttle_ms AS observed_throttle_ms,
            throttled AS observed_throttled, {simulated}, scrapes, scraped AS scraped_rate, reckoned AS reckoned_rate,
            CASE WHEN scrapes > 0 THEN {_error("abs(reckoned - scraped)", "scraped")} END AS rate_error, verdict
        FROM {checks} ORDER BY CASE WHEN verdict = '{BucketVerdict.MISSED}' THEN 0 ELSE 1 END, {KEY}
        {"" if limit is None else f"LIMIT {limit}"}""",
        is_long=limit is None,
    )


def _error(difference: str, whole: str) -> str:
    return f"CASE WHEN {difference} = 0 THEN 0.0E0 WHEN {whole} <> 0 THEN CAST({difference} AS DOUBLE) / {whole} END"


def _check(row: dict[str, Any]) -> BucketCheck:
    own = {"user": row["user"] or None, "client_id": row["client_id"] or None, "limit": row.pop("quota")}
    own |= {"quota_type": QuotaType(row["quota_type"]), "verdict": BucketVerdict(row["verdict"])}
    return BucketCheck(**row | own)
