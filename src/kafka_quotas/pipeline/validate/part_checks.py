"""The comparisons of many buckets on columns, in parts of clients.

Contract: functions named by `of_each`, `joined` and `regrouped` run where the rows are. Those of `of_each` return
counts, and as many rows as are asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.charges import (
    ASKS,
    GROUP,
    Sums,
    common_with_client_id,
    common_with_forms,
    common_with_user,
    sums_by_form,
)
from kafka_quotas.pipeline.buckets.entities import NAMES, bucket_schema, columns_table
from kafka_quotas.pipeline.engine.client_parts import ClientParts
from kafka_quotas.pipeline.replay.job import HELD
from kafka_quotas.pipeline.tables.arrow import compute as pc
from kafka_quotas.pipeline.validate.check import BucketCheck, RateCheck, ThrottleCheck, Verdict

_BUCKET: Final = [bucket_schema().field(name) for name in NAMES]
SCRAPED: Final = ("ts_ms", "cluster", "broker", "quota_type", "user", "client_id", "metric", "value")
"""Columns of `metrics` that scrapes are taken from."""
SCRAPES: Final = pa.schema([*_BUCKET, ("ts_ms", pa.int64()), ("value", pa.float64())])
RATES: Final = pa.schema([*_BUCKET, ("scrapes", pa.int64()), ("scraped", pa.float64()), ("reckoned", pa.float64())])
"""Names of buckets, empty if clients share them, the number of scrapes, and averages over these in bytes/s."""
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


SLACK_SHARE: Final = 0.01
"""Share of the bucket's active time below which a difference of throttle times counts as none."""
OWN: Final = ("own_n", "own_ms")
"""Columns of the throttling in the replay of a bucket's own quota: requests, and the sum of their throttle times."""
OTHERS: Final = ("others", "others_n", "others_ms")
"""Columns of other quotas that its requests may fall under: how many, and the throttling that these may add."""
_GIVEN: Final = ("given", "given_n", "given_ms")
"""Columns of what a bucket's quota may add to requests under others."""
_RATES: Final = RATES.names[len(NAMES) :]
_FETCH: Final = QuotaType.FETCH.value
_REQUEST: Final = QuotaType.REQUEST.value
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFigures:
    """The comparisons of a part's buckets, or of all."""

    verdicts: Mapping[Verdict, int]
    """Number of buckets by verdict."""
    is_capped: bool
    """Whether any fetch under a quota was throttled."""
    is_range: bool
    """Whether any bucket's requests may have been throttled by other quotas as well."""
    first: pa.Table
    """As many buckets as were asked for, those that are missed first, then by name."""


def checked(
    used: ClientParts, held: ClientParts, rates: ClientParts | None, *, tolerance: float, limit: int | None
) -> CheckFigures:
    """Compare buckets that were used with their replay and with scraped rates.

    Args:
        used: Names, `quota`, `max`, `active_s`, `throttled` and `throttle_ms` of the buckets that may be compared.
        held: Throttle times of the replay, as in `HELD`.
        rates: Rates of the buckets with scrapes, as in `RATES`, None without any.
        tolerance: Tolerated difference by the observed figure, from 0.
        limit: Most buckets in the result, None for all.
    """
    rows = used.joined(held, with_replay)
    if rates is not None:
        rows = rows.joined(rates, with_rates)
    forms = rows.of_each(partial(sums_by_form, figures=_GIVEN))
    if forms:
        rows = rows.regrouped(partial(_with_others, forms=pa.concat_tables(forms)), "user")
        rows = rows.regrouped(_with_others_of_user, "client_id")
    found = rows.of_each(partial(_figures, tolerance=tolerance, limit=limit))
    first = [each.first for each in found]
    return CheckFigures(
        verdicts={each: sum(part.verdicts[each] for part in found) for each in Verdict},
        is_capped=any(each.is_capped for each in found),
        is_range=any(each.is_range for each in found),
        first=_first(pa.concat_tables(first), limit) if first else pa.table({}),
    )


def with_replay(used: pa.Table, held: pa.Table) -> pa.Table:
    """Return buckets with the throttling in their replay, and what that may add to others."""
    places = _places(used, held)
    own = [np.append(held[name].to_numpy(), 0)[places] for name in HELD.names[len(NAMES) :]]
    is_fetch = pc.equal(used["quota_type"], _FETCH).to_numpy()
    is_limited = pc.is_valid(used["quota"]).to_numpy()
    observed = [used[name].to_numpy() for name in ("throttled", "throttle_ms")]
    given = [is_limited * np.where(is_fetch, seen, replayed) for seen, replayed in zip(observed, own, strict=True)]
    is_request = pc.equal(used["quota_type"], _REQUEST)
    broker = pc.binary_join_element_wise(used["cluster"], used["broker_id"].cast(pa.string()), "\n")
    columns = {
        **dict(zip(OWN, own, strict=True)),
        **dict(zip(_GIVEN, [is_limited.astype(np.int64), *given], strict=True)),
        GROUP: pc.binary_join_element_wise(broker, is_request.cast(pa.string()), "\n"),
        ASKS: pc.binary_join_element_wise(broker, pc.invert(is_request).cast(pa.string()), "\n"),
    }
    return with_rates(_with_columns(used, columns), RATES.empty_table())


def with_rates(rows: pa.Table, rates: pa.Table) -> pa.Table:
    """Return buckets with their rates, 0 without scrapes."""
    places = _places(rows, rates)
    return _with_columns(rows, {name: np.append(rates[name].to_numpy(), 0)[places] for name in _RATES})


def _with_others(rows: pa.Table, *, forms: pa.Table) -> pa.Table:
    """Return buckets with what quotas that have an empty name may add to their requests."""
    return _with_columns(rows, dict(zip(OTHERS, common_with_forms(rows, forms, _GIVEN), strict=True)))


def _with_others_of_user(rows: pa.Table) -> pa.Table:
    return _with_more_others(rows, common_with_user(rows, _GIVEN))


def _with_more_others(rows: pa.Table, sums: Sums) -> pa.Table:
    added = (rows[name].to_numpy() + more for name, more in zip(OTHERS, sums, strict=True))
    return _with_columns(rows, dict(zip(OTHERS, added, strict=True)))


def _figures(rows: pa.Table, *, tolerance: float, limit: int | None) -> CheckFigures:
    """Return the comparisons of the buckets in a part by client-id."""
    rows = _with_more_others(rows, common_with_client_id(rows, _GIVEN))
    is_limited, is_scraped = pc.is_valid(rows["quota"]).to_numpy(), rows["scrapes"].to_numpy() > 0
    is_held = (rows["throttle_ms"].to_numpy() > 0) & (rows["others"].to_numpy() == 0)
    rows = judged(rows.filter(pa.array(is_limited | is_scraped | is_held)), tolerance=tolerance)
    capped = rows.filter(pa.array(_are_capped(rows)))
    return CheckFigures(
        verdicts={each: int(pc.sum(pc.equal(rows["verdict"], each.value)).as_py() or 0) for each in Verdict},
        is_capped=bool(pc.any(pc.greater(capped["throttle_ms"], 0)).as_py()),
        is_range=bool((_are_compared(rows) & (rows["others_ms"].to_numpy() > 0)).any()),
        first=_first(rows, limit),
    )


def judged(rows: pa.Table, *, tolerance: float) -> pa.Table:
    """Return buckets with their `verdict`, and whether a broker `is_exceeded` its quota of fetches.

    Throttle times hold within the tolerance, and where the difference is too small to matter.
    """
    observed_ms, low_ms, others_ms = (rows[name].to_numpy() for name in ("throttle_ms", "own_ms", "others_ms"))
    apart_ms = np.abs(np.clip(observed_ms, low_ms, low_ms + others_ms) - observed_ms)
    is_slack = apart_ms <= SLACK_SHARE * rows["active_s"].to_numpy() * 1000
    is_compared, is_capped, is_scraped = _are_compared(rows), _are_capped(rows), rows["scrapes"].to_numpy() > 0
    is_off = is_compared & ~is_slack & (_errors(apart_ms, observed_ms) > tolerance)
    scraped = rows["scraped"].to_numpy()
    is_off |= is_scraped & (_errors(np.abs(rows["reckoned"].to_numpy() - scraped), scraped) > tolerance)
    highest = pc.fill_null(rows["quota"], np.inf).to_numpy() * (1 + tolerance)
    is_exceeded = is_capped & (rows["max"].to_numpy() > highest)
    is_met = is_compared | is_capped | is_scraped
    verdicts = np.where(is_off | is_exceeded, Verdict.MISSED, np.where(is_met, Verdict.MET, Verdict.OPEN))
    known = {"verdict": pa.array(verdicts.tolist(), pa.string()), "is_exceeded": pa.array(is_exceeded)}
    return _with_columns(rows, known)


def checks_of(rows: pa.Table) -> list[BucketCheck]:
    """Return the buckets in rows of `judged` one by one."""
    compared = _are_compared(rows).tolist()
    return [_check(row, is_compared=each) for row, each in zip(rows.to_pylist(), compared, strict=True)]


def _check(row: dict[str, Any], *, is_compared: bool) -> BucketCheck:
    throttle = ThrottleCheck(
        observed_ms=row["throttle_ms"],
        low_ms=row["own_ms"],
        high_ms=row["own_ms"] + row["others_ms"],
        observed_n=row["throttled"],
        low_n=row["own_n"],
        high_n=row["own_n"] + row["others_n"],
    )
    rate = RateCheck(**{name: row[name] for name in _RATES}) if row["scrapes"] else None
    return BucketCheck(
        cluster=row["cluster"],
        broker_id=row["broker_id"],
        quota_type=QuotaType(row["quota_type"]),
        user=row["user"] or None,
        client_id=row["client_id"] or None,
        limit=row["quota"],
        peak=row["max"],
        observed_throttle_ms=row["throttle_ms"],
        observed_throttled=row["throttled"],
        throttle=throttle if is_compared else None,
        rate=rate,
        verdict=Verdict(row["verdict"]),
        is_exceeded=row["is_exceeded"],
    )


def _are_compared(rows: pa.Table) -> Mask:
    """Return where throttle times can be compared, and are not 0 without a quota."""
    is_fetch = pc.equal(rows["quota_type"], _FETCH).to_numpy()
    is_limited = pc.is_valid(rows["quota"]).to_numpy()
    found: Mask = np.where(is_limited, ~is_fetch, rows["throttle_ms"].to_numpy() > 0)
    return found


def _are_capped(rows: pa.Table) -> Mask:
    """Return where the quota bounds the rate itself, as refusals of fetches do."""
    found: Mask = pc.and_(pc.equal(rows["quota_type"], _FETCH), pc.is_valid(rows["quota"])).to_numpy()
    return found


def _errors(apart: NDArray[Any], observed: NDArray[Any]) -> NDArray[np.float64]:
    """Return differences by what was observed: infinite of 0, but 0 if there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.float64] = np.where(apart == 0, 0.0, apart / observed)
    return found


def _first(rows: pa.Table, limit: int | None) -> pa.Table:
    """Return the first buckets, those that are missed before all others, by name."""
    ranks = rows.select(NAMES).append_column("is_held", pc.not_equal(rows["verdict"], Verdict.MISSED.value))
    order = pc.sort_indices(ranks, sort_keys=[(name, "ascending") for name in ("is_held", *NAMES)])
    return rows.take(order.slice(0, limit))


def _places(rows: pa.Table, others: pa.Table) -> NDArray[np.int64]:
    """Return the place of each bucket in another table, -1 for none."""
    wanted = rows.select(NAMES).append_column("row", pa.array(np.arange(rows.num_rows)))
    known = others.select(NAMES).append_column("place", pa.array(np.arange(others.num_rows)))
    both = wanted.join(known, list(NAMES), join_type="inner", use_threads=False)
    found = np.full(rows.num_rows, -1)
    found[both["row"].to_numpy()] = both["place"].to_numpy()
    return found


def _with_columns(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Return rows with these columns, in place of any of the same name."""
    kept = rows.drop_columns([name for name in columns if name in rows.column_names])
    for name, values in columns.items():
        kept = kept.append_column(name, values if isinstance(values, pa.ChunkedArray) else pa.array(values))
    return kept
