"""Filters over stored entities, as in Kafka's DescribeClientQuotas (KIP-546).

A component names an entity type and asks for one name (`exact`), for the default (`default`) or for anything
named or default (`any`). A strict filter matches only entities that have no other types than those named.
"""

from dataclasses import dataclass
from enum import Enum


class Match(Enum):
    """How a component matches a name."""

    EXACT = "exact"
    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterComponent:
    """One condition: the entity has a part of this type and its name matches. `name` only with `EXACT`."""

    entity_type: str
    match: Match
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """All components must match; `strict` refuses entities with other types beside."""

    components: tuple[FilterComponent, ...] = ()
    strict: bool = False


EVERYTHING = QuotaFilter()
"""The filter that every entity passes (not strict, no component)."""
