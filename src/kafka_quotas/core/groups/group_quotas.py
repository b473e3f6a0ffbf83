"""What groups mean for one client: the limits and guaranteed rates around it, as effective quotas of theirs.

A group's limit is no level of Kafka's, and overrides none: a client is held to the quota of its own by those levels and
to the limit of every group around it, of which the longest throttle time counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.groups.group import Group, GroupBound, GroupRate
from kafka_quotas.core.groups.membership import Membership, Peer
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.resolution.effective import ANONYMOUS, OTHER, EffectiveQuota, QuotaClient
from kafka_quotas.core.resolution.quota_resolver import bucket_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroups:
    """The group of a client, and the rates of the groups around it."""

    group: str | None
    """The innermost one, None if the client is in none."""
    rates: tuple[GroupRate, ...] = ()
    """By key, the innermost group first."""
    needs_address: bool = False
    """Whether there are groups by listener or address, which a client's names alone don't show."""

    def beside(self, quotas: Iterable[EffectiveQuota]) -> tuple[EffectiveQuota, ...]:
        """Return a client's own quotas, each before the limits and guaranteed rates of its groups."""
        found = [_quota(bound) for rate in self.rates for bound in rate.bounds()]
        own = list(quotas)
        keys = dict.fromkeys(quota.key for quota in (*own, *found))
        return tuple(quota for key in keys for quota in (*own, *found) if quota.key is key)


UNKNOWN_GROUPS: Final = ClientGroups(group=None)
"""Those of a client if nobody says what groups there are."""


def groups_of(groups: Membership, client: QuotaClient) -> ClientGroups:
    """Return the groups of a client by its names, and of its connections by its address."""
    peer = Peer(address=client.ip if isinstance(client.ip, str) else "")
    of_connections = groups.group_of_connection(peer)
    group, around = of_connections, groups.tree.chain(of_connections)
    rates = [rate for rate in _rates(around) if client.ip is not None and QUOTA_KEYS[rate.key].for_ip]
    if client.user is not None or client.client_id is not None:
        names = ANONYMOUS if client.user is None else client.user, client.client_id or ""
        user, client_id = (name if isinstance(name, str) else OTHER.value for name in names)
        group = groups.group_of(user, client_id, peer)
        own = _rates(groups.tree.chain(group))
        rates = [*(rate for rate in own if not QUOTA_KEYS[rate.key].for_ip), *rates]
    return ClientGroups(group=group, rates=tuple(rates), needs_address=groups.has_origins)


def _rates(groups: Sequence[Group]) -> list[GroupRate]:
    found = [rate for group in groups for rate in group.rates()]
    return [rate for key in QUOTA_KEYS for rate in found if rate.key == key]


def _quota(bound: GroupBound) -> EffectiveQuota:
    return EffectiveQuota(
        key=QUOTA_KEYS[bound.key],
        limit=bound.rate,
        entity=bound.entity,
        level=bound.level,
        bucket=bucket_tags(bound.bucket),
        overridden=(),
        shared_with=f"all clients in group {shown_name(bound.group)}",
        warnings=(),
    )
