"""The changes that bring a store to the requested quotas: a value to show, keep in a file and apply.

    {"schema": "kafka-quotas.plan/1", "store": "zk://...", "fingerprint": "sha256:...",
     "changes": [{"entity": {"user": "alice"}, "key": "producer_byte_rate", "old": null, "new": 1048576}]}

A plan that changes groups of clients has them in `groups`: a digest of those before, and all of those after.

Contract: a plan names the value before and after of every quota that changes, sorted. It holds no unchanged quota. It
keeps a fingerprint of everything else in the store, so that a store that has changed since refuses it. Applying part
of a plan does not make it stale: each of its quotas may have its old or its new value.

Invariants: one change per entity and key. `old` and `new` differ, None is "not set". In a file a name of null is a
default, a value of null is "not set", and NaN and infinities are the texts that Java uses.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from kafka_quotas.core.described import Described, QuotaValue
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.java import double_text, parse_double
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import STORED_KEYS

Content = Mapping[Entity, Mapping[str, float]]
"""What a store holds: entity to its quotas, key name to value (units of the key)."""
Declared = Mapping[Entity, Mapping[str, float | None]]
"""What is asked for: as `Content`, where None asks for a key not to be set."""
Owns = Callable[[Entity], bool]

_KEY_ORDER: Final = {name: index for index, name in enumerate(STORED_KEYS)}


class StalePlanError(KafkaQuotasError):
    """A store that has changed since the plan was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    """One quota before and after (units of the key, None: not set)."""

    entity: Annotated[Entity, Described(prefix="")]
    key: str
    old: QuotaValue
    new: QuotaValue

    @property
    def is_unchanged(self) -> bool:
        """Whether the value stays as it was."""
        return same_value(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes sorted by entity and key, and the `fingerprint` of everything else in the store."""

    changes: tuple[PlannedChange, ...]
    fingerprint: str

    def left_to_do(self, stored: Content) -> "Plan":
        """Return the part of the plan that is not done yet.

        Raises:
            StalePlanError: A quota in the store is neither as before the plan nor as the plan makes it.
        """
        for change in self.changes:
            found = stored.get(change.entity, {}).get(change.key)
            if not (same_value(found, change.old) or same_value(found, change.new)):
                raise StalePlanError(
                    f"the store has changed since the plan was made: {change.key} of {change.entity} is "
                    f"{_in_words(found)}, not {_in_words(change.old)}",
                    hint="make a new plan",
                )
        if fingerprint(stored, self.changes) != self.fingerprint:
            raise StalePlanError(
                "the store has changed since the plan was made: quotas that the plan does not name are different",
                hint="make a new plan",
            )
        todo = (each for each in self.changes if not same_value(stored.get(each.entity, {}).get(each.key), each.new))
        return planned(stored, todo)


def applied(stored: Content, changes: Iterable[PlannedChange]) -> dict[Entity, dict[str, float]]:
    """Return the content of a store after every change, without entities that have no quotas left."""
    content = {entity: dict(quotas) for entity, quotas in stored.items()}
    for change in changes:
        quotas = content.setdefault(change.entity, {})
        if change.new is None:
            quotas.pop(change.key, None)
        else:
            quotas[change.key] = change.new
    return {entity: quotas for entity, quotas in content.items() if quotas}


def new_values(changes: Iterable[PlannedChange]) -> dict[Entity, dict[str, float | None]]:
    """Return what the changes set, by entity and key name, None where they remove a quota."""
    merged: dict[Entity, dict[str, float | None]] = {}
    for change in changes:
        merged.setdefault(change.entity, {})[change.key] = change.new
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmanaged:
    """Stored keys of an entity that no declaration names."""

    entity: Entity
    keys: tuple[str, ...]
    declared: bool


def plan_changes(stored: Content, desired: Declared, *, prune: bool = False, owns: Owns | None = None) -> Plan:
    """Return the plan that brings the stored quotas to the declared ones.

    With `prune` it also removes stored quotas that are not declared, but never a key that is no quota key of Kafka's.
    It leaves every entity outside `owns` alone, declared or not.
    """
    after: dict[Entity, dict[str, float | None]] = {
        entity: {**stored.get(entity, {}), **quotas}
        for entity, quotas in desired.items()
        if owns is None or owns(entity)
    }
    for left in unmanaged_in(stored, desired, owns=owns) if prune else ():
        quotas = after.setdefault(left.entity, dict(stored[left.entity]))
        quotas |= {key: None for key in left.keys if key in STORED_KEYS}
    return planned(stored, differences({entity: stored.get(entity, {}) for entity in after}, after))


def planned(stored: Content, changes: Iterable[PlannedChange]) -> Plan:
    """Return the plan of some changes to what is stored."""
    ordered = tuple(sorted(changes, key=lambda change: (change.entity.sort_key, key_rank(change.key))))
    return Plan(changes=ordered, fingerprint=fingerprint(stored, ordered))


def unmanaged_in(stored: Content, desired: Declared, *, owns: Owns | None = None) -> tuple[Unmanaged, ...]:
    """Return the stored quotas that no declaration names, sorted by entity, without those outside `owns`."""
    found: list[Unmanaged] = []
    for entity in sorted(stored, key=lambda each: each.sort_key):
        if owns is not None and not owns(entity):
            continue
        declared = desired.get(entity)
        keys = tuple(sorted((key for key in stored[entity] if key not in (declared or ())), key=key_rank))
        if keys:
            found.append(Unmanaged(entity=entity, keys=keys, declared=declared is not None))
    return tuple(found)


def same_value(one: float | None, other: float | None) -> bool:
    """Return whether two stored values are the same, with NaN equal to itself."""
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


def fingerprint(stored: Content, changes: Iterable[PlannedChange] = ()) -> str:
    """Return a digest of all stored quotas except those that are about to change."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, and many runs make no plan

    changing = {(change.entity, change.key) for change in changes}
    digest = sha256()
    for line in sorted(_lines(stored, changing)):
        digest.update(line)
    return f"sha256:{digest.hexdigest()}"


def _lines(stored: Content, changing: set[tuple[Entity, str]]) -> Iterator[bytes]:
    for entity, quotas in stored.items():
        for key, value in quotas.items():
            if (entity, key) not in changing:
                yield repr((entity.parts, key, float(value))).encode("utf-8", "surrogatepass") + b"\n"


def key_rank(key: str) -> tuple[int, str]:
    """Return the rank of a key in listings, with Kafka's keys in the order of their table before others."""
    return (_KEY_ORDER.get(key, len(_KEY_ORDER)), key)


def _in_words(value: float | None) -> str:
    return "not set" if value is None else f"{value:.15g}"


def differences(before: Declared, after: Declared) -> tuple[PlannedChange, ...]:
    """Return the changes from `before` to `after`, sorted by entity and key."""
    changes = (
        PlannedChange(entity=entity, key=key, old=before.get(entity, {}).get(key), new=after.get(entity, {}).get(key))
        for entity, key in quotas_in(before, after)
    )
    return tuple(change for change in changes if not change.is_unchanged)


def quotas_in(*contents: Declared) -> Iterator[tuple[Entity, str]]:
    """Yield the quotas of several contents, each once, sorted by entity and key."""
    entities = {entity for content in contents for entity in content}
    for entity in sorted(entities, key=lambda each: each.sort_key):
        keys = {key for content in contents for key in content.get(entity, {})}
        for key in sorted(keys, key=key_rank):
            yield entity, key


PLAN_SCHEMA: Final = "kafka-quotas.plan/1"
_HINT: Final = "make a new plan: kafka-quotas diff FILE --out plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGroups:
    """The groups of a plan as documents, and the store or file that they were planned for."""

    place: str
    before: str
    """A digest of the groups before."""
    after: Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """A plan, and the address of the store that it was made for."""

    plan: Plan
    store_url: str
    groups: KeptGroups | None = None


def plan_text(kept: KeptPlan) -> str:
    """Return the plan as JSON text, one change per line."""
    head = {"schema": PLAN_SCHEMA, "store": kept.store_url, "fingerprint": kept.plan.fingerprint}
    lines = (json.dumps(change_document(change), ensure_ascii=False) for change in kept.plan.changes)
    changes = ",\n    ".join(lines)
    block = f"[\n    {changes}\n  ]" if changes else "[]"
    of_groups = "" if kept.groups is None else f',\n  "groups": {json.dumps(asdict(kept.groups), ensure_ascii=False)}'
    return f'{json.dumps(head, indent=2, ensure_ascii=False)[:-2]},\n  "changes": {block}{of_groups}\n}}\n'


def is_plan(document: object) -> bool:
    """Return whether a JSON document declares itself a plan, of any version."""
    return isinstance(document, Mapping) and str(document.get("schema", "")).startswith("kafka-quotas.plan/")


def plan_from(document: Mapping[str, Any]) -> KeptPlan:
    """Return the plan in a JSON document.

    Raises:
        UsageError: The plan is of another version, incomplete, or names an entity or key twice.
    """
    if document.get("schema") != PLAN_SCHEMA:
        raise UsageError(f"not a plan of this version: {document.get('schema')!r}", hint=_HINT)
    try:
        changes = tuple(change_from(entry) for entry in document["changes"])
        kept = KeptPlan(
            plan=Plan(changes=changes, fingerprint=text_in(document["fingerprint"])),
            store_url=text_in(document["store"]),
            groups=groups_in(document.get("groups")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, KafkaQuotasError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"the plan is damaged: {problem}", hint=_HINT) from error
    if len({(change.entity, change.key) for change in changes}) < len(changes):
        raise UsageError("the plan changes a quota twice", hint=_HINT)
    return kept


def groups_in(document: Mapping[str, Any] | None) -> KeptGroups | None:
    """Return the groups of a plan or an entry of the journal, None without any."""
    if document is None:
        return None
    place, before = text_in(document["place"]), text_in(document["before"])
    return KeptGroups(place=place, before=before, after=list(document["after"]))


def change_document(change: PlannedChange) -> dict[str, object]:
    """Return one change as a JSON object."""
    return {
        "entity": change.entity.to_mapping(),
        "key": change.key,
        "old": _number(change.old),
        "new": _number(change.new),
    }


def change_from(document: Mapping[str, Any]) -> PlannedChange:
    """Return the change that `change_document` wrote."""
    names = {kind: None if name is None else text_in(name) for kind, name in document["entity"].items()}
    return PlannedChange(
        entity=Entity.from_mapping(names),
        key=text_in(document["key"]),
        old=_value_in(document["old"]),
        new=_value_in(document["new"]),
    )


def _number(value: float | None) -> int | float | str | None:
    if value is None:
        return None
    if not math.isfinite(value):
        return double_text(value)
    return int(value) if value == int(value) else value


def _value_in(number: object) -> float | None:
    if number is None:
        return None
    if isinstance(number, str):
        return parse_double(number)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{number!r} is no value")
    return float(number)


def text_in(value: object) -> str:
    """Return a text of a JSON document, or raise a `TypeError` for any other value."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
