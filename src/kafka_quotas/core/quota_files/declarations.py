"""The checked declarations of quota files: entity to quotas, with every problem and its location.

    schema: kafka-quotas.quotas/1         # optional
    values: {web: 10MiB}                  # the value of `$web`; --values overrides it
    defaults: {request_percentage: 200}   # the quotas of entries that don't set them
    entries:
      - {entity: {user: alice, client-id: null}, quotas: {producer_byte_rate: $web}}
    group:                                # see core.groups.group; `$name` has no meaning here
      - {name: payments, members: [{user: checkout}], producer_byte_rate: 50MiB}

Contract: a file may also be the list of entries alone. An entity is declared once in all files together, and so is a
group. Overlays override entries key by key and groups as a whole, later ones override earlier ones. Values carry units
and are exact. A value of null declares a key as not set. An entry that this program refuses to send to a store is a
problem, unless it has `invalid: true`. The JSON schema of the files describes the shape that editors and pipelines
check, which is less: not that an entity is declared twice, nor that a value has no name, nor that groups don't fit
together.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from kafka_quotas.core.changes.validation import our_refusals
from kafka_quotas.core.errors import InvalidQuotaError, KafkaQuotasError
from kafka_quotas.core.formats.nodes import Diagnostic, Node, SourceLocation, kind_of, shown
from kafka_quotas.core.formats.typed_document import FieldSpec, filled, schema_of
from kafka_quotas.core.groups.group import Group, group_problems
from kafka_quotas.core.java import parse_double
from kafka_quotas.core.model.entity import ABSENT, BROKER, CLIENT_ID, ENTITY_TYPES, IP, TOPIC, USER, Entity
from kafka_quotas.core.model.quota_key import (
    KEY_OF_KIND,
    QUOTA_KEYS,
    STORED_KEYS,
    QuotaKey,
    Unit,
    ValueType,
    is_threshold_entity,
)
from kafka_quotas.core.model.value_format import parse_quota_value

QUOTAS_SCHEMA: Final = "kafka-quotas.quotas/1"
SECTIONS: Final = ("schema", "values", "defaults", "entries", "group")
DEFAULT_SUFFIX: Final = "-default"
"""The suffix by which `user-default: true` means `user: null`, because TOML has no null."""
_REFERENCE: Final = re.compile(r"\$(?:\{([\w.-]+)\}|([\w.-]+))")
_TYPES_HINT: Final = "an entity has a user, a client-id, both, or an ip; null is the default"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawEntry:
    """An entry as written, unchecked except for its types."""

    location: SourceLocation
    entity: Annotated[Mapping[str, object], FieldSpec(example="{user: alice}")]
    quotas: Annotated[Mapping[str, object], FieldSpec(example="{producer_byte_rate: 10MiB}")]
    invalid: bool = False


def _this_schema(name: str) -> str:
    if name != QUOTAS_SCHEMA:
        raise InvalidQuotaError(f"this is {shown(name)}, not {QUOTAS_SCHEMA}", hint="is it the right file?")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDocument:
    """One file: its entries in order, its `values` for `$name`, and the default quotas of every entry."""

    location: SourceLocation
    schema: Annotated[str, FieldSpec(_this_schema)] = QUOTAS_SCHEMA
    values: Mapping[str, object] | None = None
    defaults: Mapping[str, object] | None = None
    entries: tuple[RawEntry, ...] | None = ()
    left_out: Annotated[tuple[Diagnostic, ...], FieldSpec(name="")] = ()
    """What a file of another tool has that Kafka has no quota for."""
    groups: Annotated[tuple[Group, ...], FieldSpec(name="group")] = ()


def document_of(node: Node) -> tuple[QuotaDocument | None, tuple[Diagnostic, ...]]:
    """Return the document in a file, without entries that have a problem, and all problems.

    The document is None if the file as a whole has another shape.
    """
    whole = Node({"entries": node.value}, node.source) if isinstance(node.value, list | None) else node
    return filled(QuotaDocument, whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declared quotas of an entity."""

    entity: Entity
    quotas: Mapping[str, float | None]
    invalid: bool
    """Whether the entry may hold what this program refuses."""
    location: SourceLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All declarations sorted by entity, groups as declared, and all problems in the order of the files."""

    entries: tuple[Declaration, ...]
    groups: tuple[Group, ...]
    problems: tuple[Diagnostic, ...]
    unused_values: tuple[str, ...]
    left_out: tuple[Diagnostic, ...] = ()

    def desired(self) -> dict[Entity, Mapping[str, float | None]]:
        """Return the declared quotas by entity."""
        return {entry.entity: entry.quotas for entry in self.entries}


def declarations(documents: Sequence[QuotaDocument], overlays: Sequence[QuotaDocument] = ()) -> Declarations:
    """Return the declarations of the documents after applying the overlays."""
    reader = _Reader(documents, overlays)
    found: dict[Entity, Declaration] = {}
    for document in documents:
        for entry in reader.entries(document):
            reader.check_alone(entry, found.setdefault(entry.entity, entry))
    for entry in (each for overlay in overlays for each in reader.entries(overlay)):
        below = found.get(entry.entity, entry)
        quotas, invalid = {**below.quotas, **entry.quotas}, entry.invalid or below.invalid
        found[entry.entity] = replace(entry, quotas=quotas, invalid=invalid)
    for entry in found.values():
        reader.check(entry)
    return Declarations(
        entries=tuple(sorted(found.values(), key=lambda entry: entry.entity.sort_key)),
        groups=tuple(reader.groups(documents, overlays)),
        problems=tuple(reader.problems),
        unused_values=tuple(sorted(reader.unused)),
        left_out=tuple(each for document in (*documents, *overlays) for each in document.left_out),
    )


class _Reader:
    def __init__(self, documents: Sequence[QuotaDocument], overlays: Sequence[QuotaDocument]) -> None:
        self.problems: list[Diagnostic] = []
        self._values: dict[str, object] = {}
        for document in documents:
            for name, value in (document.values or {}).items():
                if name in self._values and self._values[name] != value:
                    self.report(document.location, f"the value {shown(name)} is given twice", "keep one of them")
                self._values[name] = value
        self._overlaid: dict[str, object] = {}
        for overlay in overlays:
            self._values |= overlay.values or {}
            self._overlaid |= overlay.defaults or {}
        self.unused = set(self._values)

    def report(self, location: SourceLocation, message: str, hint: str | None = None) -> None:
        self.problems.append(Diagnostic(location=location, message=message, hint=hint))

    def entries(self, document: QuotaDocument) -> Iterator[Declaration]:
        """Yield the declarations of one document, without entries that have a problem."""
        defaults = self._quotas({**(document.defaults or {}), **self._overlaid}, document.location, lenient=False)
        for raw in document.entries or ():
            try:
                entity = entity_of(raw.entity)
            except KafkaQuotasError as error:
                self.report(raw.location, error.message, error.hint or _TYPES_HINT)
                continue
            quotas = self._quotas(raw.quotas, raw.location, lenient=raw.invalid)
            if len(quotas) < len(raw.quotas):
                continue
            general = {key: value for key, value in defaults.items() if _takes(entity, key)}
            yield Declaration(entity=entity, quotas={**general, **quotas}, invalid=raw.invalid, location=raw.location)

    def groups(self, documents: Sequence[QuotaDocument], overlays: Sequence[QuotaDocument]) -> Iterable[Group]:
        """Return the groups of all files together, and report what keeps them from fitting together."""
        found: dict[str, Group] = {}
        for group in (each for document in documents for each in document.groups):
            self.check_alone(group, found.setdefault(group.name, group))
        found |= {group.name: group for overlay in overlays for group in overlay.groups}
        for problem in group_problems(found.values()):
            self.report(found[problem.group].location, f"group {problem.group}: {problem.message}", problem.hint)
        return found.values()

    def check_alone(self, given: Declaration | Group, first: Declaration | Group) -> None:
        """Report a problem if an entity was declared before."""
        if first is not given:
            message = f"{given.entity} appears twice, also at {first.location.place}"
            self.report(given.location, message, "keep one of them")

    def check(self, entry: Declaration) -> None:
        """Report a problem if this program would refuse the entry."""
        if entry.invalid:
            return
        if not entry.quotas:
            self.report(entry.location, f"no quota is declared of {entry.entity}", "leave it out, or name its quotas")
            return
        refused = our_refusals(entry.entity, entry.quotas)
        if refused is not None:
            hint = "write null for the default" if "name is empty" in refused.message else refused.hint
            self.report(entry.location, refused.message, hint)

    def _quotas(self, raw: Mapping[str, object], location: SourceLocation, *, lenient: bool) -> dict[str, float | None]:
        quotas: dict[str, float | None] = {}
        for key, value in raw.items():
            try:
                if key not in STORED_KEYS and not lenient:
                    refused = our_refusals(Entity.of(user="any"), {key: None})
                    raise refused or InvalidQuotaError(f"unknown quota key: {key!r}")
                quotas[key] = _value(key, self._resolved(value), lenient=lenient)
            except KafkaQuotasError as error:
                self.report(location, error.message, error.hint)
        return quotas

    def _resolved(self, value: object) -> object:
        reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference is None:
            return value
        name = reference[1] or reference[2]
        if name not in self._values:
            raise InvalidQuotaError(
                f"${name} has no value", hint="give it one under `values:` in the file, or with --values FILE"
            )
        self.unused.discard(name)
        return self._values[name]


def _takes(entity: Entity, key: str) -> bool:
    if is_threshold_entity(entity):
        return key == KEY_OF_KIND[entity.parts[0][0]].name
    return key in QUOTA_KEYS and QUOTA_KEYS[key].for_ip == (entity.ip is not ABSENT)


def entity_of(raw: Mapping[str, object]) -> Entity:
    """Return the entity that a mapping such as `{user: alice, client-id: null}` names."""
    pairs: list[tuple[str, str | None]] = []
    for kind, name in raw.items():
        if kind.removesuffix(DEFAULT_SUFFIX) in (*ENTITY_TYPES, BROKER) and kind.endswith(DEFAULT_SUFFIX):
            if name is not True:
                raise InvalidQuotaError(f"{kind} is {shown(name)}", hint=f"write {kind}: true, or leave it out")
            pairs.append((kind.removesuffix(DEFAULT_SUFFIX), None))
        elif name is not None and not isinstance(name, str):
            raise InvalidQuotaError(
                f"the {kind} name is {kind_of(name)}, not a text: {shown(name)}", hint="put the name in quotes"
            )
        else:
            pairs.append((kind, name))
    return Entity.from_pairs(pairs)


def _value(key: str, value: object, *, lenient: bool) -> float | None:
    """Return the value of a key (units of the key), None where it is declared as not set."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidQuotaError(f"{key} is {kind_of(value)}, not a figure: {shown(value)}")
    if isinstance(value, str):
        return _value_of_text(key, value, lenient=lenient)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if not lenient and not math.isfinite(number):
        raise InvalidQuotaError(f"{key} must be a finite number, not {shown(value)}", hint=f"write {key}: unlimited")
    return number


def _value_of_text(key: str, text: str, *, lenient: bool) -> float:
    known = STORED_KEYS.get(key)
    if known is None:
        return parse_double(text)
    try:
        return parse_quota_value(known, text)
    except InvalidQuotaError:
        if not lenient:
            raise
        return parse_double(text)


_NUMBER: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_UNITS: Final = {
    Unit.BYTES_PER_SECOND: r"\s*([kMGT]|[kKMGT]i)?([bB])?(/s|ps)?",
    Unit.PERCENT: r"\s*%?",
    Unit.PARTITIONS_PER_SECOND: r"\s*(/s)?",
    Unit.CONNECTIONS_PER_SECOND: r"\s*(/s)?",
}
_EXAMPLES: Final = {
    Unit.BYTES_PER_SECOND: [1048576, "10MiB", "80Mbps", "unlimited"],
    Unit.PERCENT: [50, "12.5%", "unlimited"],
    Unit.PARTITIONS_PER_SECOND: [5, "10/s", "unlimited"],
    Unit.CONNECTIONS_PER_SECOND: [5, "10/s", "unlimited"],
}
_UNLIMITED: Final = "[uU][nN][lL][iI][mM][iI][tT][eE][dD]"
_REFERRED: Final = r"\$(\{[\w.-]+\}|[\w.-]+)"
_ENTITIES: Final = (
    ((USER, CLIENT_ID), "A user, a client-id, or a pair of both; null is the default."),
    ((IP,), "An address, of which null is the default."),
    ((TOPIC,), "A topic, which has a threshold."),
    ((BROKER,), "A broker by node id, which has a total; null is the default."),
)
"""The types of the entities that a file may have, and what they are."""


def json_schema() -> dict[str, Any]:
    """Return the schema, as a JSON document."""
    entries = {"type": "array", "items": {"$ref": "#/$defs/entry"}}
    figures = {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}
    sections = {
        "schema": {"const": QUOTAS_SCHEMA},
        "values": {"description": "What $name stands for in quotas; --values FILE lays others over them.", **figures},
        "defaults": {
            "description": "Quotas that every entry has that does not say otherwise.",
            **_object({name: _value_schema(key) for name, key in QUOTA_KEYS.items()}),
        },
        "entries": entries,
        "group": {
            "description": "Groups of clients that share limits, for a local store or the daemon's policy.",
            "type": "array",
            "items": {"$ref": "#/$defs/group"},
        },
    }
    marked = {"properties": {"invalid": {"const": True}}, "required": ["invalid"]}
    fields = {
        "entity": {"anyOf": [{"$ref": f"#/$defs/{kinds[0]}"} for kinds, _ in _ENTITIES]},
        "quotas": {"type": "object"},
        "invalid": {
            "description": "Values may be such as are refused otherwise; needs --allow-invalid.",
            "type": "boolean",
        },
    }
    pairs = [
        {"properties": {"entity": {"$ref": f"#/$defs/{kinds[0]}"}, "quotas": _quotas(kinds[0])}}
        for kinds, _ in _ENTITIES
    ]
    then = {"if": marked, "then": {"properties": {"quotas": figures}}, "else": {"anyOf": pairs}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Kafka quotas, declared for kafka-quotas apply",
        "oneOf": [entries, _object(sections)],
        "$defs": {
            "group": schema_of(Group),
            "entry": _object(fields, required=["entity", "quotas"], **then),
            **{kinds[0]: _entity(kinds, text) for kinds, text in _ENTITIES},
        },
    }


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


def _entity(kinds: Sequence[str], text: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for kind in kinds:
        properties[kind] = {"type": "string" if kind == TOPIC else ["string", "null"], "minLength": 1}
        if kind != TOPIC:
            default = {"description": f"The same as {kind}: null, for TOML.", "const": True}
            properties[f"{kind}{DEFAULT_SUFFIX}"] = default
    twice = [{"required": [kind, f"{kind}{DEFAULT_SUFFIX}"]} for kind in kinds]
    bounds = {"minProperties": 1, "maxProperties": len(kinds), "not": {"anyOf": twice}}
    return {"description": text, **_object(properties, **bounds)}


def _quotas(kind: str) -> dict[str, Any]:
    keys = (
        [KEY_OF_KIND[kind]]
        if kind in KEY_OF_KIND
        else [each for each in QUOTA_KEYS.values() if each.for_ip == (kind == IP)]
    )
    return _object({key.name: _value_schema(key) for key in keys})


def _value_schema(key: QuotaKey) -> dict[str, Any]:
    is_whole = key.value_type is not ValueType.DOUBLE
    bound = {"maximum": key.unlimited} if is_whole else {}
    text = rf"^\s*(({_NUMBER}{_UNITS[key.unit]})|{_UNLIMITED}|{_REFERRED})\s*$"
    return {
        "description": f"{key.summary[0].upper()}{key.summary[1:]}; null declares it as not set.",
        "examples": _EXAMPLES[key.unit],
        "oneOf": [
            {"type": "integer" if is_whole else "number", "exclusiveMinimum": 0, **bound},
            {"type": "null"},
            {"type": "string", "pattern": text},
        ],
    }
