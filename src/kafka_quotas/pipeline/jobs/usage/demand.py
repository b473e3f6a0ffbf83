"""The demand of each bucket if nobody had held it back, by hour of the week, with growth.

The rate of a second is Kafka's own, except where throttle times held the bucket's connections back. There it is the
mean rate of the minute by the share of the time that was left to send in, a lower bound: the client may have wanted
more. A connection that was held back for four fifths of a minute shows how fast it can send, not how much it wants; its
demand is unknown, and counts as what it got.

The demand is the 99th percentile of the rate in the busiest hour of the week: for each of its hours the weekly values
are weighted by their age. Times are UTC.

Hours of an incident are left out: those that reach ten times the bucket's usual day, on at most a fifth of its days. A
bucket that reached at least twice as much in the first half of the days as ever since has declined, and its demand is
that of the second half, which has a working day in it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.pipeline.kernels.order import starts_of
from kafka_quotas.pipeline.tables.arrow import compute as pc

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

HALF_LIFE_DAYS: Final = 14.0
"""Age at which a week counts half."""
UNKNOWN_SHARE: Final = 0.8
"""Share of the time held back from which on the rate left is that of the line."""
_PERCENTILE: Final = 0.99
_OVER_WEEKS: Final = 0.95
_GROWTH_DAYS: Final = 14
_INCIDENT_FACTOR: Final = 10.0
"""Level of a day by the median day's from which on it may be an incident."""
_INCIDENT_SHARE: Final = 0.2
"""Share of the days up to which such days are incidents; on more of them they are the bucket's way."""
_INCIDENT_DAYS: Final = 4
"""Fewest days with traffic that show what is usual."""
_DECLINE_FACTOR: Final = 2.0
_DECLINE_DAYS: Final = 4
"""Fewest recent days that show a decline: any four have a working day among them."""
_INTERVAL_DAYS: Final = 3
_SAMPLES: Final = 100
_MINUTE_MS: Final = 60_000
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_FIRST_WEEKDAY: Final = 3  # 1970 began on a Thursday
_GROUP: Final = 1 << 42
"""Further apart than any two times in ms."""


_CONNECTION_MINUTE: Final = ("row", "connection", "minute")
_SUMMED: Final = {"amount": "sum", "held_ms": "sum", "first_ms": "min", "end_ms": "max"}
"""What is known of a connection's minute, and how that of several parts is joined."""


class HeldTime:
    """For how long throttle times held each row's connections back, minute by minute."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._until_ms: dict[tuple[int, int], int] = {}

    def add(
        self, rows: NDArray[np.int32], connections: Int64s, times_ms: Int64s, *, amounts: Floats, throttle_ms: Int64s
    ) -> None:
        """Add charges, none earlier than those of an earlier call.

        A charge of row -1 is skipped. `throttle_ms` are the throttle times that responses carried.
        """
        kept = np.flatnonzero(rows >= 0)
        order = kept[np.lexsort((times_ms[kept], connections[kept], rows[kept]))]
        if not order.size:
            return
        of_rows, connections, times_ms = rows[order].astype(np.int64), connections[order], times_ms[order]
        starts = starts_of(of_rows, connections)
        keys = list(zip(of_rows[starts].tolist(), connections[starts].tolist(), strict=True))
        groups = np.repeat(np.arange(starts.size), np.diff(np.append(starts, order.size)))
        ends = times_ms + throttle_ms[order]
        known = np.array([self._until_ms.get(key, 0) for key in keys], np.int64)
        # spans of one connection overlap where several requests were under way: they count once
        latest = np.maximum.accumulate(np.maximum(ends, known[groups]) + groups * _GROUP) - groups * _GROUP
        before = np.concatenate(([0], latest[:-1]))
        before[starts] = known
        held = np.maximum(ends - np.maximum(times_ms, before), 0)
        lasts = np.append(starts[1:], of_rows.size) - 1
        self._until_ms |= {key: int(end) for key, end in zip(keys, latest[lasts].tolist(), strict=True)}
        columns = (of_rows, connections, times_ms // _MINUTE_MS, amounts[order], held, times_ms, latest)
        charges = pa.table(list(map(pa.array, columns)), [*_CONNECTION_MINUTE, *_SUMMED])
        self._parts.append(_grouped(charges, _CONNECTION_MINUTE, _SUMMED))

    def minutes(self) -> tuple[pa.Table | None, dict[int, float]]:
        """Return the minutes in which rows were held back, and the share of each such row's time.

        Minutes come by row and time. Of each the implied `rate` is known, in the unit of the quota key, and whether
        most of its amount `is_unknown`: of connections that were held back nearly all the time.
        """
        if not any(pc.max(part["held_ms"]).as_py() for part in self._parts):
            return None, {}
        found = _grouped(pa.concat_tables(self._parts), _CONNECTION_MINUTE, _SUMMED)
        amounts, held_ms, first_ms, end_ms = (found[name].to_numpy() for name in _SUMMED)
        spans = np.clip(end_ms - first_ms, 1, _MINUTE_MS)
        shares = np.minimum(held_ms / spans, 1.0)
        is_unknown = shares >= UNKNOWN_SHARE
        own = {
            "span": spans,
            "wanted": amounts / np.where(is_unknown, 1.0, 1.0 - shares),
            "unknown": np.where(is_unknown, amounts, 0.0),
        }
        for name, column in own.items():
            found = found.append_column(name, pa.array(column))
        by_minute = _grouped(found, ("row", "minute"), _SUMMED | dict.fromkeys(own, "sum"))
        by_minute = by_minute.sort_by([("row", "ascending"), ("minute", "ascending")])
        columns = {name: by_minute[name].to_numpy() for name in by_minute.column_names}
        end_ms = np.minimum(columns["end_ms"], (columns["minute"] + 1) * _MINUTE_MS)
        open_s = np.maximum(end_ms - columns["first_ms"], 1000) / 1000
        minutes = pa.table(
            {
                "row": columns["row"],
                "minute": columns["minute"],
                "rate": columns["wanted"] / open_s,
                "is_unknown": columns["unknown"] > columns["amount"] / 2,
            }
        ).filter(pa.array(columns["held_ms"] > columns["span"] * 0.01))
        of_rows = _grouped(found, ("row",), {"held_ms": "sum", "span": "sum"})
        held_shares = np.minimum(of_rows["held_ms"].to_numpy() / of_rows["span"].to_numpy(), 1.0)
        return minutes, dict(zip(of_rows["row"].to_pylist(), held_shares.tolist(), strict=True))


def _grouped(rows: pa.Table, keys: Sequence[str], sums: Mapping[str, str]) -> pa.Table:
    """Join the rows with equal keys, by a function for each other column."""
    found = rows.group_by(list(keys), use_threads=False).aggregate(list(sums.items()))
    return found.select([*keys, *map("_".join, sums.items())]).rename_columns([*keys, *sums])


def demand_columns(
    rows: Int64s, seconds: Int64s, rates: Floats, held: HeldTime, *, horizon_days: float
) -> list[pa.Array]:
    """Return the demand of each row some days after the recording, in the columns `DEMAND`.

    Cells are of a second and sorted by row and time. `rates` are Kafka's largest in each, in the unit of the quota key.
    """
    minutes, held_shares = held.minutes()
    rates, is_held, is_unknown = _implied(rows, seconds, rates, minutes)
    starts, hours = starts_of(rows), seconds // _HOUR_S
    slots = starts_of(rows, hours)
    values = _percentile(rates, rows * _GROUP + hours, slots, _PERCENTILE)
    hours, days, places = hours[slots], hours[slots] // 24, np.searchsorted(rows[starts], rows[slots])
    calendar = _calendar(days)

    def daily_of(kept: NDArray[np.bool_]) -> Floats:
        """Return the demand of each row's busiest hour by day, NaN if it had no traffic."""
        found = np.full((starts.size, calendar.size), -np.inf)
        np.maximum.at(found, (places[kept], np.searchsorted(calendar, days[kept])), values[kept])
        found[np.isneginf(found)] = np.nan
        return found

    is_incident, incidents = _incidents(
        rows, seconds, rates, daily=daily_of(values > -np.inf), hours=(slots, places, values)
    )
    before = _level_before_decline(daily_of(~is_incident))
    is_usual = ~is_incident & (np.isnan(before)[places] | (days >= calendar[-(calendar.size // 2) :][0]))
    weights = 0.5 ** ((int(seconds.max()) // _DAY_S - days[is_usual]) / HALF_LIFE_DAYS)
    need, hour = _busiest_hour(places[is_usual], hours[is_usual], values[is_usual], weights)
    daily = daily_of(is_usual)
    growth, (low, high) = _growth(daily, horizon_days), _interval(daily, need)
    held_s, unknown_s = (np.add.reduceat(each.astype(np.int64), starts) for each in (is_held, is_unknown))
    return [
        pa.array(need * growth),
        *(pa.array(each * growth, mask=~np.isfinite(low)) for each in (low, high)),
        pa.array(growth),
        pa.array(hour.astype(np.int32)),
        pa.array(np.isfinite(daily).sum(axis=1).astype(np.int32)),
        pa.array([held_shares.get(row, 0.0) for row in rows[starts].tolist()], pa.float64()),
        pa.array((unknown_s > 0) & (2 * unknown_s > held_s)),
        pa.array(before, mask=np.isnan(before)),
        *incidents,
    ]


def _incidents(
    rows: Int64s, seconds: Int64s, rates: Floats, *, daily: Floats, hours: tuple[Int64s, Int64s, Floats]
) -> tuple[NDArray[np.bool_], list[pa.Array]]:
    """Find the hours of incidents, given the level of each day, and the start, row and level of each hour.

    Returns:
        Which hours they are, and of each row's largest incident the begin, the length and the rate, null for none.
    """
    slots, places, values = hours
    count = np.isfinite(daily).sum(axis=1)
    usual = np.nanmedian(daily, axis=1)
    bounds = np.where((count >= _INCIDENT_DAYS) & (usual > 0), usual * _INCIDENT_FACTOR, np.inf)
    with np.errstate(invalid="ignore"):
        high = (daily > bounds[:, None]).sum(axis=1)
    bounds[high > _INCIDENT_SHARE * count] = np.inf
    found = values > bounds[places]
    begin, length, rate = np.zeros(usual.size, np.int64), np.zeros(usual.size, np.int64), np.zeros(usual.size)
    for slot in np.flatnonzero(found)[np.argsort(values[found], kind="stable")].tolist():  # the largest comes last
        own = slice(slots[slot], slots[slot + 1] if slot + 1 < slots.size else rows.size)
        above = seconds[own][rates[own] > bounds[places[slot]]]
        begin[places[slot]], length[places[slot]] = above[0] * 1000, above[-1] - above[0] + 1
        rate[places[slot]] = values[slot]
    is_none = rate == 0
    return found, [pa.array(each, mask=is_none) for each in (begin, length, rate)]


def _level_before_decline(daily: Floats) -> Floats:
    """Return the usual level of each row before it declined, NaN of one that did not."""
    recent = daily.shape[1] // 2
    if recent < _DECLINE_DAYS:
        return np.full(daily.shape[0], np.nan)
    known = np.isfinite(daily[:, :-recent]).any(axis=1) & np.isfinite(daily[:, -recent:]).any(axis=1)
    found = np.full(daily.shape[0], np.nan)
    before = np.nanmedian(daily[known, :-recent], axis=1)
    has_declined = before > np.maximum(_DECLINE_FACTOR * np.nanmax(daily[known, -recent:], axis=1), 0.0)
    found[known] = np.where(has_declined, before, np.nan)
    return found


def _calendar(days: Int64s) -> Int64s:
    """Return all days from the first to the last, or only the recorded ones if these are few."""
    known = np.unique(days)
    return np.arange(known[0], known[-1] + 1) if known[-1] - known[0] < 4 * known.size + 7 else known


def _implied(
    rows: Int64s, seconds: Int64s, rates: Floats, held: pa.Table | None
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return each cell's rate or implied rate, whether it was held back, and whether it is unknown."""
    nothing = np.zeros(rows.size, np.bool_)
    if held is None or not held.num_rows:
        return rates, nothing, nothing
    keys = held["row"].to_numpy() * _GROUP + held["minute"].to_numpy()
    wanted = rows * _GROUP + seconds // 60
    places = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    is_held = keys[places] == wanted
    implied = np.where(is_held, held["rate"].to_numpy()[places], rates)
    return implied, is_held, is_held & held["is_unknown"].to_numpy()[places]


def _percentile(values: Floats, groups: Int64s, starts: Int64s, share: float) -> Floats:
    """Return a percentile of each group by nearest rank, of groups that are sorted."""
    ordered = values[np.lexsort((values, groups))]
    counts = np.diff(np.append(starts, values.size))
    ranks = np.maximum(np.ceil(counts * share).astype(np.int64) - 1, 0)
    found: Floats = ordered[starts + ranks]
    return found


def _busiest_hour(rows: Int64s, hours: Int64s, values: Floats, weights: Floats) -> tuple[Floats, Int64s]:
    """Return the demand of each row and the hour of its week, from Monday 0:00, that it is of."""
    of_week = (hours + _FIRST_WEEKDAY * 24) % (7 * 24)
    order = np.lexsort((values, of_week, rows))
    rows, of_week, values, weights = rows[order], of_week[order], values[order], weights[order]
    starts = starts_of(rows, of_week)
    groups = np.repeat(np.arange(starts.size), np.diff(np.append(starts, rows.size)))
    sums = np.cumsum(weights)
    before = np.concatenate(([0.0], sums))[starts]
    shares = (sums - before[groups]) / np.add.reduceat(weights, starts)[groups]
    reached = np.where(shares >= _OVER_WEEKS - 1e-9, values, np.inf)
    found = np.minimum.reduceat(reached, starts)
    order = np.lexsort((found, rows[starts]))
    lasts = np.append(starts_of(rows[starts][order])[1:], order.size) - 1
    return found[order][lasts], of_week[starts][order][lasts]


def _growth(daily: Floats, horizon_days: float) -> Floats:
    """Return each row's growth until the horizon, from 1 to 4, and 1 for fewer than two weeks."""
    factors = np.ones(daily.shape[0])
    if daily.shape[1] < _GROWTH_DAYS or horizon_days <= 0:
        return factors
    with np.errstate(invalid="ignore"):
        weekly = daily[:, 7:] - daily[:, :-7]  # of equal days of the week
        usable = np.isfinite(weekly).sum(axis=1) >= _GROWTH_DAYS // 2
        for row in np.flatnonzero(usable).tolist():
            level = np.nanmedian(daily[row, -7:])
            if level > 0:
                slope = np.nanmedian(weekly[row]) / 7
                factors[row] = min(max(1.0, 1.0 + slope * horizon_days / level), 4.0)
    return factors


def _interval(daily: Floats, need: Floats) -> tuple[Floats, Floats]:
    """Return the 5th and 95th percentile of the demand over days drawn again, NaN below three days."""
    count = np.isfinite(daily).sum(axis=1)
    unknown = np.full(need.size, np.nan)
    if daily.shape[1] < _INTERVAL_DAYS:
        return unknown, unknown
    whole = _over_days(daily)
    drawn = np.random.default_rng(0).integers(0, daily.shape[1], (_SAMPLES, daily.shape[1]))
    found = np.sort(np.stack([_over_days(daily[:, days]) for days in drawn]), axis=0)
    usable = (count >= _INTERVAL_DAYS) & (whole > 0)
    low, high = (np.where(usable, need * found[place] / np.where(usable, whole, 1.0), np.nan) for place in (4, 94))
    return np.minimum(low, need), np.maximum(high, need)


def _over_days(daily: Floats) -> Floats:
    """Return the 95th percentile of each row over the days with traffic, 0 for none."""
    ordered = np.sort(np.where(np.isfinite(daily), daily, -1.0), axis=1)
    counts = (ordered >= 0).sum(axis=1)
    ranks = daily.shape[1] - counts + np.maximum(np.ceil(counts * _OVER_WEEKS).astype(np.int64) - 1, 0)
    found: Floats = np.maximum(ordered[np.arange(len(ordered)), np.minimum(ranks, daily.shape[1] - 1)], 0.0)
    return found
