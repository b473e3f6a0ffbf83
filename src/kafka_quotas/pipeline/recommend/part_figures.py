"""What a recommendation has to know of each part of the clients: counts, bounds, ranks, and whom it names.

Contract: functions get the demands of a part (`demand_table`) and run where its rows are. Their results do not grow
with the clients, but for those who get a limit of their own.

A rank among values in many parts is exact. A part gives its distinct values in a bracket, or as many evenly spaced ones
of them as a sample may have, each with the number of values up to it. Together they bound the rank of each of them,
which narrows the bracket by a factor of about half a sample: a million values take two rounds.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.recommend.demand import ClientName
from kafka_quotas.pipeline.recommend.demand_table import (
    NOT_LIMITED,
    TRIED,
    Clients,
    in_order,
    places_in,
    throttle_times_ms,
)
from kafka_quotas.pipeline.tables.arrow import compute as pc

SAMPLE: Final = 128
"""Most values in a sample."""


class Bracket(NamedTuple):
    """Values above a lower bound, up to an upper one."""

    low: float = -math.inf
    high: float = math.inf


class ValueSample(NamedTuple):
    """Some of a part's values in a bracket."""

    below: int
    """Values of the part up to the bracket's lower bound."""
    values: NDArray[np.float64]
    """Distinct values, ascending, the largest of all among them."""
    counts: NDArray[np.int64]
    """Number of the part's values up to each of them."""
    is_whole: bool
    """Whether they are all the distinct values."""

    @property
    def up_to_high(self) -> int:
        """The number of the part's values up to the bracket's upper bound."""
        return int(self.counts[-1]) if self.counts.size else self.below

    def bounds(self, values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and largest number of the part's values that may be up to each of these."""
        counts = np.concatenate(([self.below], self.counts))
        places = np.searchsorted(self.values, values, side="right")
        least = counts[places]
        if self.is_whole:
            return least, least
        is_known = (places == 0) | (places == self.values.size)
        is_known |= np.append(self.values, np.nan)[places - 1] == values
        return least, np.where(is_known, least, counts[np.minimum(places + 1, self.values.size)] - 1)


def sample_of(values: NDArray[np.float64], bracket: Bracket, *, most: int = SAMPLE) -> ValueSample:
    """Return a sample of a part's values."""
    within = values[(values > bracket.low) & (values <= bracket.high)]
    below = int(np.count_nonzero(values <= bracket.low))
    distinct, counts = np.unique(within, return_counts=True)
    places = np.arange(distinct.size)
    if distinct.size > most:
        places = np.unique(np.linspace(0, distinct.size - 1, most).round().astype(np.int64))
    return ValueSample(below, distinct[places], below + np.cumsum(counts)[places], distinct.size == places.size)


def narrowed(bracket: Bracket, samples: Sequence[ValueSample], rank: int) -> tuple[Bracket, bool]:
    """Return a narrower bracket, and whether its upper bound is the value of a rank.

    Args:
        bracket: A bracket that has the value.
        samples: Samples of it, of all parts.
        rank: The value's rank among the values of all parts, from 1 for the least.
    """
    values = np.unique(np.concatenate([each.values for each in samples]))
    least, most = (np.sum(bounds, axis=0) for bounds in zip(*(each.bounds(values) for each in samples), strict=True))
    lows = values[most < rank]
    found = Bracket(float(lows[-1]) if lows.size else bracket.low, float(values[least >= rank][0]))
    return found, all(each.is_whole for each in samples)


CHOICES: Final = (0, 1, 2, 5, 10, 20, 50)
"""Numbers of overrides of which the default is shown."""
NEEDIEST_SHOWN: Final = 4
"""Clients of each quota type that a report shows with all that was tried."""
HELD_SHOWN: Final = 20
"""Clients of each quota type that were held back while they were recorded, and are named."""
EXCEEDING_SHOWN: Final = 20
"""Clients of each quota type that would be held back for longer than tolerated, and are named."""
RECOMMENDED: Final = (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST, QuotaType.CONTROLLER_MUTATION)
"""Quota types that brokers enforce, in display order."""
RECOMMENDED_SHARE: Final = "recommended"
DEFAULT_SHARE: Final = "default"
_OUTCOME_SHARES: Final = (RECOMMENDED_SHARE, DEFAULT_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedFigures:
    """What a part's clients used."""

    ranges: Mapping[QuotaType, tuple[float, float]]
    """Smallest median rate (or peak where that is 0) and largest peak, at any broker, of each quota type used."""
    names: frozenset[str]
    """Those of the names asked for that clients have."""


def used_figures(rows: pa.Table, *, scope: DefaultScope, names: Collection[str]) -> UsedFigures:
    """Return what a part's clients used, and which clients of some names there are."""
    ranges = {}
    for kind in QuotaType:
        own = rows.filter(pc.and_(pc.equal(rows["quota_type"], kind.value), pc.greater(rows["max"], 0.0)))
        if own.num_rows:
            p50, peak = own["p50"].to_numpy(), own["max"].to_numpy()
            ranges[kind] = float(np.where(p50 > 0, p50, peak).min()), float(peak.max())
    found = frozenset(names_of(rows, scope).filter(pa.array(_are_named(rows, scope, names))).to_pylist())
    return UsedFigures(ranges=ranges, names=found)


def need_samples(
    rows: pa.Table, *, brackets: Mapping[tuple[QuotaType, float], Bracket]
) -> dict[tuple[QuotaType, float], ValueSample]:
    """Return samples of what a part's clients need, for several ranks among all of them."""
    needs = {kind: Clients.of(rows, kind).needed for kind in {kind for kind, _ in brackets}}
    return {label: sample_of(needs[label[0]], bracket) for label, bracket in brackets.items()}


def largest_needs(rows: pa.Table, *, fences: Mapping[QuotaType, float]) -> dict[QuotaType, float]:
    """Return the largest need of a part's clients up to a fence, 0 for none."""
    needs = {kind: Clients.of(rows, kind).needed for kind in fences}
    return {kind: float(needs[kind][needs[kind] <= fence].max(initial=0.0)) for kind, fence in fences.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFigures:
    """The clients of one quota type, in a part or over all of them."""

    clients: int
    held: int
    """Clients that were held back while they were recorded."""
    partial: int
    """Clients with an incident, or a time before a decline, that is left out of their need."""
    at_broker: Mapping[int, int]
    """Clients that used each broker."""
    curve: NDArray[np.int64]
    """For each tried limit the clients that it would hold back for longer than tolerated."""
    named: pa.Table
    """Demands of the clients that are named: those above the default, the neediest, and those asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFigures:
    """The clients of a part."""

    clients: int
    """Distinct clients, of all recommended quota types together."""
    kinds: Mapping[QuotaType, KindFigures]


def part_figures(
    rows: pa.Table,
    *,
    defaults: Mapping[QuotaType, float],
    limits: Mapping[QuotaType, list[float]],
    scope: DefaultScope,
    names: Collection[str],
) -> PartFigures:
    """Return what limits have to be chosen from.

    Args:
        rows: The demands of the part.
        defaults: The default of each quota type that was used.
        limits: The tried limits of each, ascending.
        scope: The clients that get a quota each.
        names: Clients to name in any case, as `scope` has them.
    """
    rows, kinds, used = in_order(rows), {}, []  # of equal needs the names decide
    for kind, default in defaults.items():
        clients = Clients.of(rows, kind)
        is_named = clients.needed > default
        is_named[np.argsort(clients.needed, kind="stable")[-NEEDIEST_SHOWN:]] = True
        held = np.flatnonzero(clients.is_held)
        shown_first = np.lexsort((-clients.needed[held], ~clients.is_unknown[held]))
        is_named[held[shown_first[:HELD_SHOWN]]] = True
        partial = np.flatnonzero(clients.is_partial)
        is_named[partial[np.argsort(-clients.peak[partial], kind="stable")[:HELD_SHOWN]]] = True
        is_named |= _are_named(clients.names(), scope, names)
        brokers, counts = np.unique(clients.rows["broker_id"].to_numpy(), return_counts=True)
        replayed = np.sort(clients.replayed)
        kinds[kind] = KindFigures(
            clients=clients.needed.size,
            held=held.size,
            partial=partial.size,
            at_broker=dict(zip(brokers.tolist(), counts.tolist(), strict=True)),
            curve=replayed.size - np.searchsorted(replayed, limits[kind], side="right"),
            named=clients.chosen(is_named),
        )
        used.append(clients.names())
    distinct = pa.concat_tables(used).group_by(["user", "client_id"]).aggregate([]).num_rows if used else 0
    return PartFigures(clients=distinct, kinds=kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLimits:
    """Which clients of a quota type get a limit of their own, and what all others get."""

    above: float
    """Need above which a client does."""
    more: frozenset[ClientName] = frozenset()
    """Others that do, for what all others get was cut, and theirs was not."""

    def are_own(self, clients: Clients) -> NDArray[np.bool_]:
        """Return whether each client does."""
        found = clients.needed > self.above
        if self.more:
            names = clients.names()
            for place in np.flatnonzero(pc.is_in(names["user"], pa.array({user for user, _ in self.more})).to_numpy()):
                found[place] |= (names["user"][place].as_py(), names["client_id"][place].as_py()) in self.more
        return found


def with_outcomes(rows: pa.Table, tried: pa.Table) -> pa.Table:
    """Return demands with the shares of active time that the two steps of a replay throttle."""
    places = places_in(rows, tried)
    is_limited = places >= 0
    for step, name in enumerate(_OUTCOME_SHARES):
        shares = np.zeros(rows.num_rows)
        shares[is_limited] = throttle_times_ms(tried)[places[is_limited], step] / 1000
        rows = rows.append_column(name, pa.array(np.clip(shares / rows["active_s"].to_numpy(), 0.0, 1.0)))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeFigures:
    """What the recommended quotas would do to the clients of one quota type, in a part."""

    largest_share: float
    """Largest share of active time that they throttle, over clients under the default of which all counts."""
    peak: float | None
    """Largest rate of these, None if there is none."""
    exceeding: int
    """How many of these they throttle for longer than tolerated."""
    unknown: int
    """How many of the others have an unknown demand."""
    named: pa.Table
    """Demands of those that they throttle longest beyond the tolerance."""
    shares: tuple[float, ...]
    """Share of active time that each of these is throttled, in the order of their demands."""
    own: Mapping[ClientName, tuple[float, float]]
    """Shares that they, and that the default alone, throttle each client that has a limit of its own."""


def outcome_figures(
    rows: pa.Table, *, own: Mapping[QuotaType, OwnLimits], tolerated_share: float
) -> dict[QuotaType, OutcomeFigures]:
    """Return what the recommended quotas would do, given rows of `with_outcomes`."""
    rows, found = in_order(rows), {}
    for kind, each in own.items():
        clients = Clients.of(rows, kind)
        is_own = each.are_own(clients)
        shares = [clients.at_brokers(np.maximum, clients.rows[name].to_numpy()) for name in _OUTCOME_SHARES]
        is_exceeding = ~is_own & ~clients.is_partial & (shares[0] > tolerated_share)
        is_usual = ~is_own & ~clients.is_partial
        exceeding, is_named = np.flatnonzero(is_exceeding), np.zeros(is_own.size, bool)
        longest = np.lexsort((clients.needed[exceeding], shares[0][exceeding]))[-EXCEEDING_SHOWN:]
        is_named[exceeding[longest]] = True
        names = clients.names().filter(pa.array(is_own)).to_pydict()
        found[kind] = OutcomeFigures(
            largest_share=float(shares[0][is_usual].max(initial=0.0)),
            peak=float(clients.peak[is_usual].max()) if is_usual.any() else None,
            exceeding=exceeding.size,
            unknown=int((~is_own & ~is_exceeding & clients.is_unknown).sum()),
            named=clients.chosen(is_named),
            shares=tuple(shares[0][is_named].tolist()),
            own=dict(
                zip(
                    zip(names["user"], names["client_id"], strict=True),
                    zip(*(each[is_own].tolist() for each in shares), strict=True),
                    strict=True,
                )
            ),
        )
    return found


def trials_of(tried: pa.Table, *, names: Collection[ClientName]) -> list[dict[str, Any]]:
    """Return the rows of a sweep of some clients."""
    users, client_ids = (pa.array({name[place] for name in names}, pa.string()) for place in (0, 1))
    own = tried.filter(pc.and_(pc.is_in(tried["user"], users), pc.is_in(tried["client_id"], client_ids)))
    rows = (row for row in own.to_pylist() if NOT_LIMITED not in row[TRIED])
    return [row for row in rows if (row["user"], row["client_id"]) in names]


def names_of(clients: pa.Table, scope: DefaultScope) -> pa.ChunkedArray:
    """Return the names of clients: a user, a client-id, or both with a slash between them."""
    if scope is DefaultScope.PAIR:
        return pc.binary_join_element_wise(clients["user"], clients["client_id"], "/")
    return clients["user" if scope is DefaultScope.USER else "client_id"]


def _are_named(clients: pa.Table, scope: DefaultScope, names: Collection[str]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.is_in(names_of(clients, scope), pa.array(names, pa.string())).to_numpy()
    return found
