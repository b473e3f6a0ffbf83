"""Filters over stored entities, as in Kafka's DescribeClientQuotas (KIP-546).

A component names an entity type and matches one name (`exact`), the default (`default`) or anything named or default
(`any`). A strict filter matches only entities that have no other types than those named. A filter that can match one
entity only is found by its key, which most queries can use.

A selector says which entities a file owns: `user=team-a-*`, `client-id`, `ip-default`. It names a type (any entity with
a part of it, pairs included), a type and a shell pattern for its name, or the default of a type. Several selectors add
up. Commas never split names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from kafka_quotas.core.errors import InvalidQuotaError, UsageError
from kafka_quotas.core.model.entity import CLIENT_ID, ENTITY_TYPES, IP, THRESHOLD_TYPES, USER, Absent, Entity


class Match(Enum):
    """The ways in which a component matches a name."""

    EXACT = "exact"
    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterComponent:
    """One condition: the entity has a part of this type whose name matches."""

    entity_type: str
    match: Match
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """A filter whose components must all match."""

    components: tuple[FilterComponent, ...] = ()
    strict: bool = False
    """Whether entities with other types do not match."""


EVERYTHING = QuotaFilter()
"""The filter that every entity passes (not strict, no component)."""

_ZK_NAMES = {USER: "user", CLIENT_ID: "client", IP: "ip"}


def matches(quota_filter: QuotaFilter, entity: Entity) -> bool:
    """Return whether an entity passes a filter that the verdicts below let pass."""
    if quota_filter.strict and len(entity.parts) != len(quota_filter.components):
        return False
    return all(_component_matches(component, entity) for component in quota_filter.components)


def filter_verdict_kraft(quota_filter: QuotaFilter) -> InvalidQuotaError | None:
    """Return a KRaft broker's error for a filter, or None.

    **Source:** `ClientQuotasImage.describe` (Kafka 4.0).
    """
    seen: set[str] = set()
    for component in quota_filter.components:
        error = _kraft_component_verdict(component, seen)
        if error is not None:
            return error
        seen.add(component.entity_type)
    if IP in seen and seen & {USER, CLIENT_ID}:
        return InvalidQuotaError(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return None


def filter_verdict_local(quota_filter: QuotaFilter) -> InvalidQuotaError | None:
    """Return the local store's error for a filter, a KRaft broker's but for thresholds, or None."""
    kinds = [component.entity_type for component in quota_filter.components]
    if any(kind in THRESHOLD_TYPES for kind in kinds):
        if len(kinds) > 1:
            return InvalidQuotaError("a topic or broker can't be combined with anything else in a filter")
        return None
    return filter_verdict_kraft(quota_filter)


def filter_verdict_zk(quota_filter: QuotaFilter) -> InvalidQuotaError | None:
    """Return the error of a broker in ZooKeeper mode for a filter, or None.

    **Source:** `ZkAdminManager.describeClientQuotas` (Kafka 3.9).
    """
    seen: set[str] = set()
    for component in quota_filter.components:
        kind = component.entity_type
        if kind in seen:
            return InvalidQuotaError(f"Duplicate {_ZK_NAMES[kind]} filter component entity type")
        if kind == "":
            return InvalidQuotaError("Unexpected empty filter component entity type")
        if kind not in _ZK_NAMES:
            return InvalidQuotaError(f"Custom entity type '{kind}' not supported", code="UNSUPPORTED_VERSION")
        seen.add(kind)
    if IP in seen and seen & {USER, CLIENT_ID}:
        return InvalidQuotaError(
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component."
        )
    if _names_one_znode(quota_filter) and any(component.name == "" for component in quota_filter.components):
        return InvalidQuotaError(
            "a broker in ZooKeeper mode fails at an empty name: no znode has one", code="UNKNOWN_SERVER_ERROR"
        )
    return None


def _names_one_znode(quota_filter: QuotaFilter) -> bool:
    """Return whether a broker in ZooKeeper mode reads only the znode that the filter names."""
    named = {component.entity_type for component in quota_filter.components if component.match is not Match.ANY}
    alone = quota_filter.strict and len(quota_filter.components) == 1
    return IP in named or named == {USER, CLIENT_ID} or (alone and bool(named))


def _component_matches(component: FilterComponent, entity: Entity) -> bool:
    name = entity.part(component.entity_type)
    if isinstance(name, Absent):
        return False
    if component.match is Match.EXACT:
        return name == component.name
    return component.match is Match.ANY or name is None


def _kraft_component_verdict(component: FilterComponent, seen: set[str]) -> InvalidQuotaError | None:
    kind, match = component.entity_type, component.match
    if not kind:
        return InvalidQuotaError("Invalid empty entity type.")
    if kind in seen:
        return InvalidQuotaError(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in ENTITY_TYPES:
        return InvalidQuotaError(f"Unsupported entity type {kind}", code="UNSUPPORTED_VERSION")
    if match is Match.EXACT and component.name is None:
        return InvalidQuotaError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match is not Match.EXACT and component.name is not None:
        wire_name = "MATCH_TYPE_DEFAULT" if match is Match.DEFAULT else "MATCH_TYPE_SPECIFIED"
        return InvalidQuotaError(f"Request specified {wire_name}, but also specified a match string.")
    return None


_HINT = "for example user=team-a-*, client-id=web, user-default, ip"
_KINDS = (*ENTITY_TYPES, *THRESHOLD_TYPES)


def owner(selectors: Sequence[str]) -> Callable[[Entity], bool]:
    """Return the test whether any of the selectors matches an entity.

    Without selectors every entity matches.

    Raises:
        UsageError: A selector that can't be understood.
    """
    tests = [_test(selector) for selector in selectors]
    return lambda entity: not tests or any(test(entity) for test in tests)


def _test(selector: str) -> Callable[[Entity], bool]:
    kind, equals, pattern = selector.partition("=")
    default_of = kind.removesuffix("-default")
    if not equals and default_of != kind and default_of in _KINDS:
        return lambda entity: entity.part(default_of) is None
    if kind not in _KINDS or (equals and not pattern):
        raise UsageError(f"not a selector: {selector!r}", hint=_HINT)
    if not equals:
        return lambda entity: not isinstance(entity.part(kind), Absent)
    return lambda entity: isinstance(name := entity.part(kind), str) and fnmatchcase(name, pattern)


def single_entity(quota_filter: QuotaFilter) -> Entity | None:
    """Return the one entity that a valid filter can match, or None if it may match several."""
    if not quota_filter.strict or not quota_filter.components:
        return None
    if any(component.match is Match.ANY for component in quota_filter.components):
        return None
    return Entity.from_pairs((component.entity_type, component.name) for component in quota_filter.components)


def entity_filter(entity: Entity) -> QuotaFilter:
    """Return the filter that matches one entity only, the inverse of `single_entity`."""
    components = (
        FilterComponent(entity_type=kind, match=Match.DEFAULT if name is None else Match.EXACT, name=name)
        for kind, name in entity.parts
    )
    return QuotaFilter(components=tuple(components), strict=True)
