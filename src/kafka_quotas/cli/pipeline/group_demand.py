"""What groups need, by the recorded demand of the clients that are in them.

The demands of a group's clients are added up broker by broker, as limits hold per broker. Clients that are busy at
different hours need less together, so the sum is the most that a group can need.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

from kafka_quotas.core.described import Described
from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.groups.membership import Membership
from kafka_quotas.core.model.quota_key import QuotaType
from kafka_quotas.core.model.value_format import format_count, format_quota, format_rate
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.jobs.recommend.advice import Recommendation


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


def unseen_members(groups: GroupTree, scope: DefaultScope) -> Iterator[str]:
    """Yield why some members of groups are not seen in the records, or by the kind of default."""
    part = {DefaultScope.USER: "client_id", DefaultScope.CLIENT_ID: "user"}.get(scope)
    members = [member for group in groups.groups for member in group.members]
    if part is not None and any(member.names(part) is not None for member in members):
        whose = f"members of groups by {part.replace('_', '-')} are not seen with --default-of {scope.value}"
        yield f"{whose}; --default-of pair sees them"
    if any(member.listener is not None or member.address is not None for member in members):
        yield "members of groups by listener or address are not seen, as the records have neither"
