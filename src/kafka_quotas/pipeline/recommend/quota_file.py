"""The recommendation as a proposal to replay, and as a file for `apply`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.value_format import format_rate
from kafka_quotas.core.quota_files.writer import FileFormat, file_text
from kafka_quotas.pipeline.buckets.proposal import DefaultScope, Proposal
from kafka_quotas.pipeline.recommend.advice import Advice, Override

Limits = dict[Entity, dict[str, float]]


def recommended_limits(advices: Sequence[Advice], scope: DefaultScope) -> Limits:
    """Return the quotas to set by entity, sorted, without clients that have no name.

    Kafka sets no quota on an empty name.
    """
    limits: Limits = defaultdict(dict)
    for advice in advices:
        for entity, override in _entities(advice, scope):
            limits[entity][advice.quota_type.key.name] = advice.default if override is None else override.limit
    return {entity: limits[entity] for entity in sorted(limits, key=lambda each: each.sort_key)}


def _entities(advice: Advice, scope: DefaultScope) -> Iterator[tuple[Entity, Override | None]]:
    """Yield the entities to set quotas on: the default one, and each client that has a name with its override."""
    yield scope.default_entity, None
    for each in advice.overrides:
        if is_nameable(each, scope):
            yield scope.entity(each.demand.user, each.demand.client_id), each


def is_nameable(override: Override, scope: DefaultScope) -> bool:
    """Check whether a quota can be set on a client, which Kafka refuses for empty names."""
    return all(name != "" for _, name in scope.entity(override.demand.user, override.demand.client_id).parts)


def recommended_proposal(advices: Sequence[Advice], scope: DefaultScope) -> Proposal:
    """Return the recommendation as a proposal to replay."""
    limits = recommended_limits(advices, scope)
    return Proposal(name="recommended", entries=tuple(limits.items()))


def recommended_text(advices: Sequence[Advice], scope: DefaultScope, *, heading: Sequence[str]) -> Iterator[str]:
    """Yield the YAML file piece by piece, every entry below a comment with its reason."""
    yield from (f"# {line}\n" for line in heading)
    limits = recommended_limits(advices, scope)
    reasons: dict[Entity, list[str]] = defaultdict(list)
    for advice in advices:
        for entity, override in _entities(advice, scope):
            reason = default_reason(advice) if override is None else override_reason(advice, override)
            reasons[entity].append(reason)
    pieces = iter(file_text(limits.items(), FileFormat.YAML))
    yield next(pieces)
    for entity in limits:
        yield from (f"\n  # {line}" for line in reasons[entity])
        yield next(pieces)
    yield from pieces


def default_reason(advice: Advice) -> str:
    """Return the reason for the default in one line."""
    tolerance, clients = advice.tolerance, len(advice.demands)
    if advice.is_raised:
        key = advice.quota_type.key
        return (
            f"{key.name}: {format_rate(key.name, advice.lowest_default)} would do for what was used; "
            "it is one whole fetch per second, for under less a consumer may get nothing at all"
        )
    return (
        f"{advice.quota_type.key.name}: suffices for {clients - len(advice.overrides)} of {clients} clients, who would "
        f"be held back for at most {tolerance.time_share:.2%} of their active time"
    )


def override_reason(advice: Advice, override: Override) -> str:
    """Return the reason for a client's override in one line."""
    demand, key = override.demand, advice.quota_type.key
    busiest = demand.busiest(advice.tolerance.time_share)
    needed = busiest.needed(advice.tolerance.time_share)
    return (
        f"{key.name}: needs {format_rate(key.name, needed)} at broker {busiest.broker_id}, its peak is "
        f"{format_rate(key.name, demand.peak)}; the default would hold it back for "
        f"{override.throttled_share_at_default:.0%} of its active time"
    )
