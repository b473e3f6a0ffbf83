"""The comparison of recorded events with their own replay under the quotas in force.

Recorded requests already include the effect of throttling, which is why the open model is replayed. The broker answers
a throttled fetch empty and takes its charge back, and no log has its size: throttle times of fetches can't be compared,
but the admitted amount must fit the quota.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pyarrow as pa

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.entities import NAMES, bucket_schema
from kafka_quotas.pipeline.engine.runner import OpenEvents
from kafka_quotas.pipeline.replay.job import replay
from kafka_quotas.pipeline.replay.outcomes import ReplayOutcomes
from kafka_quotas.pipeline.replay.task import Model, ReplayPlan
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.tables.schemas import METRICS
from kafka_quotas.pipeline.usage.job import usage
from kafka_quotas.pipeline.usage.tables import UsageTables
from kafka_quotas.pipeline.usage.task import UsagePlan
from kafka_quotas.pipeline.validate.check import BucketCheck, RateCheck, ThrottleCheck, ValidatePlan, Verdict

Row = dict[str, Any]
_ANY: Final = object()
_USED: Final = ("quota", "max", "active_share", "throttled", "throttle_ms")
_BUCKET: Final = pa.schema([bucket_schema().field(name) for name in NAMES])
_METRIC: Final = "byte_rate"
_SCRAPED: Final = ("ts_ms", "cluster", "broker", "quota_type", "user", "client_id", "value")
_TYPES: Final = frozenset({"produce", "fetch"})
Bucket = tuple[str, int, str, str, str]
"""Cluster, broker, quota type, user and client-id, the last two empty where the bucket is shared across them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """The number of throttled requests, and the sum of their throttle times."""

    requests: int = 0
    total_ms: int = 0

    def __add__(self, other: "Throttled") -> "Throttled":
        return Throttled(requests=self.requests + other.requests, total_ms=self.total_ms + other.total_ms)


class SharedRequests:
    """The throttling that other quotas may add to a bucket's requests.

    Request time is charged for all of them. A bucket has an empty name where its requests are of any user or client-id.
    """

    def __init__(self, at_most: Mapping[Bucket, Throttled]) -> None:
        self._found: dict[object, list[Throttled]] = defaultdict(list)
        for (cluster, broker_id, kind, *names), throttled in at_most.items():
            for user, client_id in product(*((name, _ANY) for name in names)):
                self._found[cluster, broker_id, kind == QuotaType.REQUEST.value, user, client_id].append(throttled)

    def of(self, bucket: Bucket) -> list[Throttled]:
        """Return the most that each other quota may add to requests of the bucket, empty where there is none."""
        cluster, broker_id, kind, *names = bucket
        users, client_ids = ((name, "") if name else (_ANY,) for name in names)
        return [
            added
            for user, client_id in product(users, client_ids)
            for added in self._found.get((cluster, broker_id, kind != QuotaType.REQUEST.value, user, client_id), ())
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The buckets that have a quota or were throttled, sorted by name."""

    plan: ValidatePlan
    seconds: int
    """Length of the recording."""
    buckets: tuple[BucketCheck, ...]

    def having(self, verdict: Verdict) -> tuple[BucketCheck, ...]:
        """Return the buckets with a verdict."""
        return tuple(each for each in self.buckets if each.verdict(self.plan.tolerance) is verdict)

    @property
    def ok(self) -> bool:
        """Whether at least one bucket was compared, and all compared ones are within the tolerance."""
        return bool(self.having(Verdict.MET)) and not self.having(Verdict.MISSED)


def validate(events: OpenEvents, plan: ValidatePlan) -> Validation:
    """Compare open events with their replay, and the rates that were scraped with those of the events.

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
    simulated = _simulated(outcomes)
    rates = rate_checks(scrapes, used, plan.window)
    rows = compared_rows(used, rates)
    shared = SharedRequests({_name(row): _at_most(row, simulated) for row in rows if row["quota"] is not None})
    checks = []
    for row in rows:
        name = _name(row)
        others = shared.of(name)
        if row["quota"] is not None or name in rates or (row["observed"].total_ms > 0 and not others):
            throttle = _throttle(row, simulated.get(name, Throttled()), sum(others, Throttled()), seconds)
            checks.append(_check(row, throttle, rates.get(name)))
    return Validation(plan=plan, seconds=seconds, buckets=tuple(checks))


def compared_rows(usage: UsageTables, scraped: Iterable[Bucket]) -> list[Row]:
    """Return profiles and sums of throttle times of the buckets that may be compared.

    They have a quota, were throttled, or share a name with one that was scraped.
    """
    names = {name for (*_, user, client_id) in scraped for name in (user, client_id) if name}
    is_scraped = pc.field("user").isin(names) | pc.field("client_id").isin(names) if names else False
    is_used = pc.is_valid(pc.field("quota")) | (pc.field("throttle_ms") > 0) | is_scraped
    rows = usage.buckets(_USED, only=is_used).to_pylist()
    return [{**row, "observed": Throttled(requests=row["throttled"], total_ms=row["throttle_ms"])} for row in rows]


def _throttle(row: Row, own: Throttled, others: Throttled, seconds: int) -> ThrottleCheck | None:
    """Compare throttle times, None where they can't be compared or are 0 without a quota."""
    is_fetch = row["quota_type"] == QuotaType.FETCH.value
    observed, most = row["observed"], own + others
    if (row["quota"] is None and not observed.total_ms) or (is_fetch and row["quota"] is not None):
        return None
    return ThrottleCheck(
        observed_ms=observed.total_ms,
        low_ms=own.total_ms,
        high_ms=most.total_ms,
        active_s=max(round(row["active_share"] * seconds), 1),
        observed_n=observed.requests,
        low_n=own.requests,
        high_n=most.requests,
    )


def _check(row: Row, throttle: ThrottleCheck | None, rate: RateCheck | None) -> BucketCheck:
    return BucketCheck(
        cluster=row["cluster"],
        broker_id=row["broker_id"],
        quota_type=QuotaType(row["quota_type"]),
        user=row["user"],
        client_id=row["client_id"],
        limit=row["quota"],
        peak=row["max"],
        observed_throttle_ms=row["observed"].total_ms,
        observed_throttled=row["observed"].requests,
        throttle=throttle,
        rate=rate,
    )


def _at_most(row: Row, simulated: Mapping[Bucket, Throttled]) -> Throttled:
    """Return the most that a quota may have added: the replayed or, for fetches, the observed throttling."""
    is_fetch = row["quota_type"] == QuotaType.FETCH.value
    found: Throttled = row["observed"] if is_fetch else simulated.get(_name(row), Throttled())
    return found


def _simulated(outcomes: ReplayOutcomes) -> dict[Bucket, Throttled]:
    """Return the throttling in the replay by bucket, without buckets that it never throttles."""
    return {
        _name(row): Throttled(requests=row["throttled_n"], total_ms=row["throttle_ms"])
        for row in outcomes.held().to_pylist()
    }


def _name(row: Row) -> Bucket:
    cluster, broker_id, kind, user, client_id = (row[name] for name in NAMES)
    return cluster, broker_id, kind, user or "", client_id or ""


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


def _scraped_bucket(row: dict[str, Any]) -> Bucket | None:
    """Return the bucket of a scrape, None for quotas other than bytes or a broker named by its address."""
    if row["quota_type"] not in _TYPES or not row["broker"].lstrip("-").isdecimal():
        return None
    return _name({**row, "broker_id": int(row["broker"])})
