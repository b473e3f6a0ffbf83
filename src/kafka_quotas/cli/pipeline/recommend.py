"""`kafka-quotas pipeline recommend`: which quotas to set, and why."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group, option_info
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.options.windows import WindowOptions
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Listing, columns, listed
from kafka_quotas.cli.output.render import print_listing, write
from kafka_quotas.cli.pipeline.options import (
    Data,
    EngineOptions,
    bucket_text,
    proposal_of_file,
    rates,
    recorded_events,
    unseen_members,
)
from kafka_quotas.commands.quotas.describe import policy_groups
from kafka_quotas.core.described import Described, documents_of
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.groups.membership import Membership
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.value_format import format_count, format_quota, format_rate, format_typed_rate
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.pipeline.engine.sql import ResultRun, write_result
from kafka_quotas.pipeline.jobs.recommend.advice import Advice, Demand, Recommendation
from kafka_quotas.pipeline.jobs.recommend.findings import (
    changes,
    choice_text,
    outcome,
    override_reason,
    recommendation_rows,
    recommended_file,
    warnings,
)
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan
from kafka_quotas.pipeline.tables.schemas import RECOMMENDATION
from kafka_quotas.stores import save_text

_COLUMNS = columns("entity, quota!, value>!, peak>!, demand>!, days>!, broker>!, skew>!, held>!, default>!")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TRIED_COLUMNS = columns("broker>!, quota!, limit>!, held back>!, note")


@dataclass(frozen=True, slots=True)
class ExplainedQuota:
    """What was recommended for a client, and why."""

    DOCUMENT: ClassVar = "advice.quota_type advice.default override why needed_most=demand.needed demand.brokers"
    advice: Advice
    demand: Demand

    @property
    def override(self) -> Annotated[float | None, Described(text="null where the default does")]:
        """The limit of its own."""
        return self.advice.limits().get(self.demand.name)

    @property
    def why(self) -> str:
        """The reason in words, and what the demand is made of: growth, the busiest hour and days."""
        advice, demand, implied = self.advice, self.demand, self.demand.implied
        kind, key = advice.quota_type.value, advice.quota_type.key.name
        rate = partial(format_typed_rate, kind)
        day, hour = divmod(implied.busiest_hour, 24)
        made = f"; 99 % of its busiest hour, {_WEEKDAYS[day]} {hour}:00 UTC, {rate(implied.rate)}"
        made += _interval(kind, implied.low, implied.high, " over its days")
        if implied.growth > 1:
            made += f", {implied.growth - 1:.0%} growth in it"
        made += f"; {format_count(implied.days, 'day')} recorded, {implied.confidence} confidence"
        if (override := advice.override(demand)) is not None:
            return f"{rate(override.limit)} of its own: {key}: {override_reason(advice, override)}{made}"
        if implied.is_held:
            made += f"; it was held back for {implied.held_share:.0%} of its time while it was recorded"
        return (
            f"{rate(advice.default)} as everybody: {key}: its peak is {rate(demand.peak)}; the default holds it back "
            f"for {demand.throttled_share(advice.default):.1%} of its active time{made}"
        )

    def rows(self) -> Iterator[list[Cell]]:
        """Yield limits at each broker in ascending order, with notes on those that matter."""
        kind, advice = self.advice.quota_type.value, self.advice
        for broker in self.demand.brokers:
            points = [
                (broker.p50, "median rate"),
                (broker.p99, "99th percentile of its rate"),
                (broker.peak, "peak rate"),
                (broker.needed, f"needed for at most {advice.plan.time_share:.2%}"),
                (advice.default, "the default, recommended" if self.override is None else "the default"),
            ]
            if self.override is not None:
                points.append((self.override, "recommended: what it needs with headroom"))
            notes: dict[float, list[str]] = {
                each.limit: [] for each in broker.trials[:: max(1, len(broker.trials) // 8)]
            }
            for value, note in points:
                notes.setdefault(value, []).append(note)
            for value, own in sorted(notes.items()):
                held = f"{broker.throttled_share(value):.1%}"
                yield [str(broker.broker_id), kind, *rates(kind, value), held, "; ".join(own)]


class GroupDemand(NamedTuple):
    """The demand of a group's clients under one key."""

    group: str
    key: str
    clients: Annotated[int, Described(text="that demand any, in the group and in those within it")]
    needed: Annotated[float, Described(text="their demands together, at the broker where that is most")]
    broker_id: int
    limit: Annotated[float | None, Described(text="of the group now; null for none")]
    guaranteed: Annotated[float | None, Described(text="to the group now; null for nothing")]


def group_demands(found: Recommendation, groups: GroupTree) -> tuple[GroupDemand, ...]:
    """Return the demand of each group whose clients demand anything, by group as declared and key."""
    if not groups:
        return ()
    membership = Membership(groups)
    needed: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    clients: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for row in found.observed.demands().to_pylist():
        if row["cluster"] == found.cluster:
            key, name = QuotaType(row["quota_type"]).key.name, (row["user"], row["client_id"])
            for group in groups.chain(membership.group_of(*name)):
                needed[group.name, key][row["broker_id"]] += row["demand"]
                clients[group.name, key].add(name)
    demands = []
    for group in groups.groups:
        for key in sorted(key for name, key in needed if name == group.name):
            broker_id, most = needed[group.name, key].most_common(1)[0]
            limits = group.by_key.get(key), group.guaranteed.by_key.get(key)
            demands.append(GroupDemand(group.name, key, len(clients[group.name, key]), most, broker_id, *limits))
    return tuple(demands)


def demand_lines(demands: Iterable[GroupDemand]) -> Iterator[str]:
    """Yield what each group needs, in words."""
    for each in demands:
        whose = f"for {format_count(each.clients, 'client')} together, at broker {each.broker_id}"
        limit = "it has no limit" if each.limit is None else f"its limit is {format_quota(each.key, each.limit)}"
        kept = "" if each.guaranteed is None else f", {format_quota(each.key, each.guaranteed)} are guaranteed to it"
        yield f"group {each.group}: {format_rate(each.key, each.needed)} of {each.key} {whose}; {limit}{kept}"


def advice_listing(found: Recommendation, groups: GroupTree, demands: Sequence[GroupDemand]) -> Listing:
    """List the recommended quotas, each type's default first, then the overrides, the largest first."""
    events, membership = found.events, Membership(groups)
    choices = [f"{each.quota_type.key.name}: {text}" for each in found.advices if (text := choice_text(each))]
    return listed(
        "pipeline-recommend",
        {
            "events": events.count,
            "seconds": events.seconds,
            "cluster": found.cluster,
            "default_of": found.plan.scope.value,
            "enough_data": not found.is_short,
            "quotas": [
                row
                | {
                    "group": None
                    if row["kind"] == "default"
                    else membership.group_of(row["user"] or "", row["client_id"] or "")
                }
                for row in recommendation_rows(found)
            ],
            "groups": documents_of(demands),
        },
        _COLUMNS,
        [row for advice in found.advices for row in _advice_rows(advice)],
        caption=f"from {events.count:,} events in {events.seconds:,} s, {found.clients:,} clients, "
        f"cluster {found.cluster}; every value is per broker\n"
        "demand: with growth, and its interval over days where three or more were recorded; >=: a lower bound\n"
        "days: with traffic, and how far they show the demand\n"
        "held: share of active time held back; default: under the default alone\n"
        + "\n".join([*choices, *outcome(found), *changes(found), *demand_lines(demands)]),
    )


def _advice_rows(advice: Advice) -> Iterator[list[Cell]]:
    kind, plan, per = advice.quota_type.value, advice.plan, advice.plan.scope
    held = f"{advice.largest_tolerated_share:.1%}"
    default = rates(kind, advice.default, advice.peak or 0.0)
    yield [str(per.default_entity), kind, *default, "", "", "", "", held, f"{advice.fitting} of {advice.clients} fit"]
    for demand in advice.unknown:
        yield [f"  {plan.shown_name(demand)}", kind, "the default", *_demand_cells(demand), "", "unknown", ""]
    for each in advice.overrides:
        demand = each.demand
        yield [
            str(per.entity(demand.user, demand.client_id)) if demand.has_name else "(no name)",
            kind,
            *rates(kind, each.limit),
            *_demand_cells(demand),
            f"{each.skew:.2f}",
            "unknown" if demand.is_unknown else f"{each.throttled_share:.1%}",
            "unknown" if each.throttled_share_at_default is None else f"{each.throttled_share_at_default:.1%}",
        ]


def _demand_cells(demand: Demand) -> list[Cell]:
    kind, implied = demand.quota_type.value, demand.implied
    needed, days = format_typed_rate(kind, demand.needed), f"{implied.days} ({implied.confidence})"
    if implied.is_held:
        needed = f">={needed}, unknown" if demand.is_unknown else f">={needed}"
    else:
        needed += _interval(kind, implied.low, implied.high)
    return [format_typed_rate(kind, demand.peak), needed, days, str(demand.busiest.broker_id)]


def _interval(kind: str, low: float | None, high: float | None, note: str = "") -> str:
    if low is None or high is None:
        return ""
    return f" ({format_typed_rate(kind, low)} to {format_typed_rate(kind, high)}{note})"


def demand_listing(found: Recommendation, name: str) -> Listing:
    """List what the recommendation tried on one client, broker by broker."""
    quotas = [ExplainedQuota(each, each.explained) for each in found.advices if each.explained is not None]
    if not quotas:
        raise UsageError(
            f"no events of {found.plan.scope.value} {name} in cluster {found.cluster}",
            hint="kafka-quotas pipeline usage lists the clients",
        )
    client = bucket_text(quotas[0].demand.user, quotas[0].demand.client_id)
    title = f"{client}: the share of its active time for which each limit would have held it back"
    return listed(
        "pipeline-recommend-explain",
        {"name": name, "quotas": documents_of(quotas)},
        _TRIED_COLUMNS,
        [row for each in quotas for row in each.rows()],
        caption="\n".join([title, *(each.why for each in quotas)]),
    )


Quotas = Annotated[
    str | None,
    option_info(
        "--quotas FILE", help="Compare with the quotas in force, of this file: whose limits are tightened and loosened."
    ),
]


GroupPolicy = Annotated[
    Path | None,
    option_info("--policy FILE", help="Say what the groups of this policy file of a daemon need, and who is in which."),
]


@option_group(OUTPUT_HEADING)
class AdviceOutputOptions:
    """The options about what becomes of a recommendation."""

    explain: str | None = option(
        "--explain NAME",
        help="Show what one client did at each broker and what each limit would have done: a user, a client-id, or "
        "USER/CLIENT-ID, as --default-of says.",
    )
    file: Path | None = option("--file FILE", help="Write the quotas there, as diff and apply take them.")
    out: str | None = option(
        "--out DIR", rich_help_panel=OUTPUT_HEADING, help="Write the Delta table recommendation there, a folder or URL."
    )


def recommend(
    *,
    data: Data,
    advice: RecommendPlan,
    wanted: AdviceOutputOptions,
    quotas: Quotas = None,
    policy: GroupPolicy = None,
    windows: WindowOptions,
    engine: EngineOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Recommend a default for each quota type, and quotas of their own for the few clients who need more.

    Limits are tried by exact replay: the default is the smallest that holds back no more clients, for no more of their
    time, than is tolerated. Every value is per broker, from each client's busiest one. --file writes what apply reads.
    """
    require_libraries()
    from kafka_quotas.pipeline.jobs.recommend import job  # noqa: PLC0415 - loads the kernels

    window, groups = windows.settings(), GroupTree(policy_groups(policy))
    in_force = None if quotas is None else proposal_of_file(quotas)
    plan = replace(
        advice, window=window.client, controller_window=window.controller, explained=wanted.explain, in_force=in_force
    )
    with recorded_events(engine, data) as (events, show_stage):
        recorded_s = events.recorded.seconds
        if wanted.file is not None and events.recorded.count and recorded_s < plan.min_recorded_s:
            raise UsageError(
                f"not enough data for a file of quotas: {recorded_s:,} s are recorded, {plan.min_recorded_s:,} s are "
                "wanted",
                hint=f"record for longer; or --min-recorded {recorded_s}s, or no --file to see what there is",
            )
        found = job.recommend(events, plan, step=show_stage)
        demands = group_demands(found, groups)
        if wanted.out is not None:
            rows = events.tables.add("rows", job.recommendation_table(found))
            run = ResultRun.of("recommended", events.recorded.last_ms)
            with events.errors(f"writing the recommendation to {wanted.out}"):
                write_result(events.tables, rows, wanted.out, RECOMMENDATION, run)
    if wanted.file is not None:
        save_text(wanted.file, recommended_file(found))
    explained = wanted.explain
    listing = advice_listing(found, groups, demands) if explained is None else demand_listing(found, explained)
    print_listing(listing, output)
    for line in (*warnings(found), *(f"warning: {each}" for each in unseen_members(groups.groups, plan.scope))):
        write(line, sys.stderr)
    if wanted.file is not None:
        write(f"note: the quotas are in {wanted.file}; next: kafka-quotas diff {wanted.file}", sys.stderr)
    if wanted.out is not None:
        write(f"note: the table recommendation is in {wanted.out}", sys.stderr)
