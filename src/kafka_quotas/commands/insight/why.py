"""Which stored quota wins for whom, and whether quotas slow one client down."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, NamedTuple

from kafka_quotas.commands.insight.usage import UsageReading, UsageSource, why_there_are_none
from kafka_quotas.commands.quotas.describe import NEEDS_ADDRESS, known_groups
from kafka_quotas.commands.quotas.quota_status import (
    QuotaStatus,
    StoredQuotaStatus,
    client_quota_statuses,
    quota_statuses,
)
from kafka_quotas.core.changes.plan import key_rank
from kafka_quotas.core.described import Described, Limit, Sentences, StoreAddress
from kafka_quotas.core.groups.group import GroupTree
from kafka_quotas.core.groups.membership import UNKNOWN_GROUPS, ClientGroups, Membership, groups_of
from kafka_quotas.core.model.entity import EVERYTHING, GROUP
from kafka_quotas.core.model.quota_window import RecentThrottling
from kafka_quotas.core.resolution.effective import ANONYMOUS, EffectiveQuota, EffectiveQuotas, QuotaClient
from kafka_quotas.core.resolution.usage import BrokerUsage, Usage, ending_limit, is_held_back, share_used, usage_under
from kafka_quotas.stores import Store

_ANYBODY: Final = QuotaClient()


class GroupOfTree(NamedTuple):
    """A group and whom it names."""

    name: Annotated[str, Described(text="a path: a/b lies within a")]
    members: Annotated[tuple[str, ...], Described(text="in words", prose=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeResult:
    """The stored quotas of the trees, by key, with the limits and guaranteed rates of groups behind them."""

    DOCUMENT: ClassVar = "store=store_url quotas groups"
    store_url: StoreAddress
    about_client: bool
    """Whether they are only the quotas that fit one client."""
    quotas: tuple[StoredQuotaStatus, ...]
    groups: tuple[GroupOfTree, ...]
    """The groups within a group before itself, as they are tried; of one client, its own and those around it."""

    @property
    def of_kafka(self) -> tuple[StoredQuotaStatus, ...]:
        """The quotas without those of groups."""
        return tuple(quota for quota in self.quotas if quota.status is not QuotaStatus.HOLDS)


def tree(
    store: Store, client: QuotaClient = _ANYBODY, *, key: str | None = None, groups: GroupTree | None = None
) -> TreeResult:
    """Return the stored quotas of one key or all, or those that fit one client, each with its status."""
    entries = store.describe(EVERYTHING)
    static = store.kind.is_static
    about_client = client != _ANYBODY
    found = (
        client_quota_statuses(entries, client, static=static)
        if about_client
        else quota_statuses(entries, static=static)
    )
    known = GroupTree() if groups is None else groups
    shown = tuple(known.walk())
    if about_client:
        shown = known.chain(groups_of(Membership(known), client).group)
    bounds = [bound for group in shown for bound in group.bounds()]
    of_groups = [
        StoredQuotaStatus(bound.key, bound.entity, bound.level, bound.rate, QuotaStatus.HOLDS)
        for bound in sorted(bounds, key=lambda bound: key_rank(bound.key))
    ]
    return TreeResult(
        store_url=store.url,
        about_client=about_client,
        quotas=tuple(quota for quota in (*found, *of_groups) if key is None or quota.key == key),
        groups=tuple(GroupOfTree(group.name, tuple(map(str, group.members))) for group in shown),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnswer:
    """The answer for one quota key: what applies, the bucket's usage by broker, and the remedy."""

    DOCUMENT: ClassVar = "key=quota.key.name limit quota.level quota.entity quota.shared_with brokers ends_at"
    quota: EffectiveQuota
    limit: Limit
    """The smallest limit that the source of the usage reports, else the store's."""
    usages: tuple[Usage, ...]
    ends_at: Annotated[float | None, Described(text="the value that would end the throttling")]

    @property
    def brokers(self) -> tuple[BrokerUsage, ...]:
        """The usage at each broker beside the limit."""
        return tuple(BrokerUsage(usage, self.limit) for usage in self.usages)

    @property
    def name(self) -> str:
        """The name of the group whose quota it is, empty for a quota of Kafka's levels."""
        group = None if self.quota.entity is None else self.quota.entity.part(GROUP)
        return group if isinstance(group, str) else ""

    @property
    def throttle_ms(self) -> float:
        """The longest throttle time at any broker."""
        return max((usage.throttle_ms or 0.0 for usage in self.usages), default=0.0)

    @property
    def last_minute(self) -> RecentThrottling | None:
        """The last minute at the broker that held it back longest, None where no broker reports it."""
        known = [usage.last_minute for usage in self.usages if usage.last_minute is not None]
        return max(known, key=lambda recent: (recent.held_ms, recent.times), default=None)

    @property
    def is_waiting(self) -> bool | None:
        """Whether a client waits at this instant at any broker, None where none reports it."""
        known = [usage.is_waiting for usage in self.usages if usage.is_waiting is not None]
        return any(known) if known else None

    @property
    def share(self) -> float | None:
        """The largest part of the limit that is used at any broker."""
        shares = [share_used(usage.observed, self.limit) for usage in self.usages]
        return max((share for share in shares if share is not None), default=None)

    @property
    def how_much(self) -> tuple[int, float, float]:
        """How much it holds the client back, to compare with others."""
        recent = self.last_minute
        return (0 if recent is None else recent.held_ms, self.throttle_ms, self.share or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyResult:
    """The answers by key: Kafka's, and behind it those of the groups around the client."""

    store_url: StoreAddress
    origin: Annotated[str, Described(text="where the rates come from")]
    user: Annotated[str, Described(text="empty if the client is not authenticated")]
    client_id: Annotated[str, Described(text="empty if it has none")]
    group: Annotated[str | None, Described(text="the innermost group that it is in; null for none")]
    """The group by those that the daemon holds clients to, or by those of a policy file."""
    knows_groups: bool
    """Whether groups could be asked for at all."""
    answers: tuple[KeyAnswer, ...]
    culprit: KeyAnswer | None
    """The answer that holds the client back most, None where none does."""
    notes: Sentences

    @property
    def throttled_by(self) -> Annotated[str | None, Described(text="the quota key that holds the client back")]:
        """The name of the culprit's key."""
        return None if self.culprit is None else self.culprit.quota.key.name


def client_groups(
    store: Store, source: UsageSource, reading: UsageReading, policy: Path | None, client: QuotaClient
) -> ClientGroups:
    """Return the groups of a client by a policy file, else by the daemon that was read.

    Raises:
        UsageError: The policy file can't be used.
    """
    if policy is not None or reading.store_url is None:
        known = known_groups(store.groups(), policy)
        return groups_of(Membership(known), client) if known else UNKNOWN_GROUPS
    from kafka_quotas.enforcement import ControlError, RefusedError, ask_groups  # noqa: PLC0415 - only what asks a daemon

    with suppress(RefusedError, ControlError):  # it is of a version without groups, or gone by now
        return ask_groups(source.control, client)
    return UNKNOWN_GROUPS


def why(
    store: Store,
    reading: UsageReading,
    *,
    user: str | None,
    client_id: str | None,
    groups: ClientGroups = UNKNOWN_GROUPS,
) -> WhyResult:
    """Return what holds a client back now, without authentication or client-id where that is None."""
    entries = store.describe(EVERYTHING)
    resolver = EffectiveQuotas(entries, static=store.kind.is_static)
    asked = (ANONYMOUS if user is None else user, client_id or "")
    answers = tuple(key_answer(quota, reading) for quota in groups.beside(resolver.for_client(*asked)))
    held = [answer for answer in answers if answer.ends_at is not None and guarantee_of(answer, answers) is None]
    notes = [*_notes(user, client_id)]
    if groups.needs_address:
        notes.append(NEEDS_ADDRESS)
    if not reading.usages:
        notes += why_there_are_none(entries)
    return WhyResult(
        store_url=store.url,
        origin=reading.origin,
        user=asked[0],
        client_id=asked[1],
        group=groups.group,
        knows_groups=groups is not UNKNOWN_GROUPS,
        answers=answers,
        culprit=max(held, key=lambda each: each.how_much, default=None),
        notes=tuple(notes),
    )


def guarantee_of(answer: KeyAnswer, answers: Iterable[KeyAnswer]) -> KeyAnswer | None:
    """Return the guaranteed rate that keeps the client from a group's limit now, None for none."""
    if answer.quota.level != "group":
        return None
    rates = (each for each in answers if each.quota.level == "guaranteed" and each.quota.key is answer.quota.key)
    within = (each for each in rates if each.name.startswith(f"{answer.name}/"))
    return next((each for each in within if each.usages and (each.share or 0.0) < 1.0), None)


def key_answer(quota: EffectiveQuota, reading: UsageReading) -> KeyAnswer:
    """Return the answer for one effective quota, with the usage of its bucket at each broker."""
    usages = usage_under(quota, reading.usages)
    reported = [usage.limit for usage in usages if usage.limit is not None]
    limit = min(reported, default=quota.limit)
    ends_at = None
    if limit is not None and any(is_held_back(usage, limit) for usage in usages):
        ends_at = ending_limit(quota.key.name, limit, usages, window=reading.window)
    return KeyAnswer(quota=quota, limit=limit, usages=usages, ends_at=ends_at)


def _notes(user: str | None, client_id: str | None) -> Iterator[str]:
    if user is None:
        yield f"no user was given: showing {ANONYMOUS}, the user of unauthenticated connections"
    if client_id is None:
        yield "no client-id was given: showing a client that sends none"
