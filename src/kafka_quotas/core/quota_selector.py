"""Which entities a file owns: `user=team-a-*`, `client-id`, `ip-default`.

A selector names a type (any entity with a part of it, pairs included), a type and a shell pattern for its name, or the
default of a type. Several selectors add up. Names are never cut at commas.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from kafka_quotas.core.entity import ENTITY_TYPES, THRESHOLD_TYPES, Absent, Entity
from kafka_quotas.core.errors import UsageError

_HINT = "for example user=team-a-*, client-id=web, user-default, ip"
_KINDS = (*ENTITY_TYPES, *THRESHOLD_TYPES)


def owner(selectors: Sequence[str]) -> Callable[[Entity], bool]:
    """Whether an entity is one that any of the selectors names; without selectors every entity is.

    Raises `UsageError` for a selector that can't be understood.
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
