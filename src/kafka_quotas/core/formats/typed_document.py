"""Typed documents: a file becomes nodes that know their lines, and the nodes fill a record by its types.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Stage:
        target: Annotated[float, FieldSpec(parse_rate, takes=str, example="5MB/s")]
        duration_s: Annotated[float, FieldSpec(parse_seconds, takes=str, name="duration")] = 0.0

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Load:
        title: str
        stages: tuple[Stage, ...] = ()

        def __post_init__(self) -> None:
            if not self.title.strip():
                raise UsageError("the title is empty")

    load = read_record(Load, toml_node(text, "load.toml"))

A file with two faults ends in one `DocumentError`, whose `problems` are

    load.toml:4: stages.2.targt: unknown name 'targt' (hint: did you mean target?)
    load.toml:6: title: a list is not a text

Contract: a record is a dataclass. A field without a default has to be in the file, and a name that is no field is
refused. A field takes what its type says: a text, a whole number, a number, a truth, a word of an enumeration, another
record, `tuple[X, ...]`, `Mapping[str, X]`, `X | None` (null), a union of these, or `object` (the plain value).
The names in the file have dashes in place of underscores if the record has a true `dashed_names`. `FieldSpec` converts
what the type took, and a record checks itself in `__post_init__`: both raise a `UsageError`, which gets the location. A
field of type `SourceLocation` is not in the file, it gets the record's own. All faults are reported at once, up to
`MOST_PROBLEMS`.

Words of YAML without quotes are `Plain`: a `str` takes them as they are, but not null, and any other type by their
meaning in YAML 1.2. Other scalars have the type that their format gives them.

`schema_of` returns the JSON schema of such files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.formats.nodes import (
    Diagnostic,
    DocumentError,
    Node,
    Plain,
    SourceLocation,
    is_null,
    shown,
    shown_kind,
    word_value,
)

MOST_PROBLEMS: Final = 1000
"""The number of faults after which the rest of a list is ignored: it is probably another kind of file."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The form of a field beyond its type, as `Annotated` metadata."""

    read: Callable[[Any], Any] | None = None
    """Converts what the type took, but not null, or raises a `UsageError`."""
    takes: Any = None
    """The type in the file; None: that of the field."""
    name: str | None = None
    """The name in the file; None: that of the field; empty: the field is in no file."""
    example: str | None = None
    """A value for the hint of a fault."""
    about: str = ""
    schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """What the JSON schema says beside the type in the file, such as a pattern or bounds."""
    required: bool = False
    """Whether a file has to have it, although the record has a default."""


def read_record(kind: type[_T], node: Node) -> _T:
    """Return the record that a node fills."""
    record, problems = filled(kind, node)
    if problems or record is None:
        raise DocumentError(*problems)
    return record


def filled(kind: type[_T], node: Node) -> tuple[_T | None, tuple[Diagnostic, ...]]:
    """Return the record that a node fills, without faulty items of its lists, and all faults.

    The record is None if a fault is in itself.
    """
    faults: list[Diagnostic] = []
    record = _value(kind, node, faults)
    return (None if record is _FAULTY else record), tuple(faults)


_FAULTY: Final = object()
"""The value of a part whose fault was reported."""
_OTHER: Final = object()
"""The value of a part that a type does not take."""
_Taker: TypeAlias = Callable[[Node, list[Diagnostic]], Any]
_JSON_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_NOUNS: Final = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}


def _value(kind: Any, node: Node, faults: list[Diagnostic]) -> Any:
    """Return the value of a node, or `_FAULTY` after adding to the faults."""
    found = _taker(kind)(node, faults)
    if found is not _OTHER:
        return found
    base, form = _form_of(kind)
    options = _options_of(base)
    wanted = " or ".join(_noun(option) for option in options if option is not NoneType)
    faults.append(node.problem(f"{shown_kind(node)} is not {wanted}", _example(form)))
    return _FAULTY


@cache
def _taker(kind: Any) -> _Taker:
    """Return the function that reads what a type takes, and returns `_OTHER` for anything else."""
    base, form = _form_of(kind)
    if form is not None:
        return _converting(_taker(base), form)
    options = _options_of(base)
    if len(options) > 1:
        takers = [_taker(option) for option in options]
        return lambda node, faults: next(
            (found for take in takers if (found := take(node, faults)) is not _OTHER), _OTHER
        )
    outer = get_origin(base) or base
    if outer is object:
        return lambda node, _: node.plain()
    if is_dataclass(outer) or outer is Mapping:
        item = outer if is_dataclass(outer) else get_args(base)[1]
        read: Callable[[Any, Node, list[Diagnostic]], Any] = _record if is_dataclass(outer) else _mapping
        return lambda node, faults: read(item, node, faults) if isinstance(node.value, dict) else _OTHER
    if outer is tuple:
        return lambda node, faults: _items(get_args(base)[0], node, faults) if isinstance(node.value, list) else _OTHER
    return lambda node, _: _scalar(outer, node.value)


def _converting(take: _Taker, form: FieldSpec) -> _Taker:
    def converted(node: Node, faults: list[Diagnostic]) -> Any:
        before = len(faults)
        found = take(node, faults)
        if form.read is None or found is None or found is _OTHER or found is _FAULTY:
            return found
        if len(faults) > before:  # a list without its faulty items
            return _FAULTY
        try:
            return form.read(found)
        except UsageError as error:
            faults.append(node.problem(error.message, error.hint or _example(form)))
            return _FAULTY

    return converted


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of the files that fill a record, or of what a field takes."""
    base, form = _form_of(kind)
    if form is not None:
        return {**schema_of(base), **(form.schema or {}), **({"description": form.about} if form.about else {})}
    options = _options_of(base)
    if len(options) > 1:
        made = [schema_of(option) for option in options]
        is_plain = all(each.keys() == {"type"} for each in made)
        return {"type": [each["type"] for each in made]} if is_plain else {"anyOf": made}
    outer = get_origin(base) or base
    if is_dataclass(outer):
        named = {name: each for name, each in _fields_of(base).items() if each[1] is not SourceLocation}
        return {
            "type": "object",
            "properties": {name: schema_of(of) for name, (_, of, _) in named.items()},
            "required": [name for name, (_, _, required) in named.items() if required],
            "additionalProperties": False,
        }
    if outer in (tuple, Mapping):
        item = schema_of(get_args(base)[outer is Mapping])
        return {"type": "array", "items": item} if outer is tuple else {"type": "object", "additionalProperties": item}
    if isinstance(outer, type) and issubclass(outer, Enum):
        return {"enum": [each.value for each in outer]}
    return {} if outer is object else {"type": _JSON_TYPES[outer]}


def _record(kind: Any, node: Node, faults: list[Diagnostic]) -> Any:
    given, known = node.value, _fields_of(kind)
    values: dict[str, Any] = {}
    is_faulty = False
    for name, (attribute, of, required) in known.items():
        if of is SourceLocation:
            values[attribute] = node.location
        elif name in given:
            values[attribute] = _value(of, node.at(name), faults)
            is_faulty = is_faulty or values[attribute] is _FAULTY
        elif required:
            faults.append(node.problem(f"{name} is missing", _example(_form_of(of)[1])))
            is_faulty = True
    for name in given:
        if name not in known or known[name][1] is SourceLocation:
            names = [each for each, (_, of, _) in known.items() if of is not SourceLocation]
            hint = near_hint(name, names, otherwise=f"known are {', '.join(names)}")
            faults.append(node.at(name).problem(f"unknown name {shown(name)}", hint))
            is_faulty = True
    if is_faulty:
        return _FAULTY
    try:
        return kind(**values)
    except UsageError as error:
        faults.append(node.problem(error.message, error.hint))
        return _FAULTY


def _items(kind: Any, node: Node, faults: list[Diagnostic]) -> tuple[Any, ...]:
    found = []
    for item in node.items:
        value = _value(kind, item, faults)
        if value is not _FAULTY:
            found.append(value)
        elif len(faults) >= MOST_PROBLEMS:
            break
    return tuple(found)


def _mapping(kind: Any, node: Node, faults: list[Diagnostic]) -> Any:
    if kind is object:
        return node.plain()
    values = {name: _value(kind, part, faults) for name, part in node.parts.items()}
    return _FAULTY if any(value is _FAULTY for value in values.values()) else values


def _scalar(kind: Any, value: object) -> Any:
    if kind is str:
        return str(value) if isinstance(value, str) and not is_null(value) else _OTHER
    if issubclass(kind, Enum):
        return next((each for each in kind if str(each.value) == value), _OTHER)
    if isinstance(value, Plain):
        value = word_value(value)
    if kind is float and type(value) is int:
        return float(value)
    return value if type(value) is kind else _OTHER


@cache
def _form_of(kind: Any) -> tuple[Any, FieldSpec | None]:
    if get_origin(kind) is not Annotated:
        return kind, None
    base, *metadata = get_args(kind)
    spec = next((each for each in metadata if isinstance(each, FieldSpec)), FieldSpec())
    return base if spec.takes is None else spec.takes, spec


def _options_of(kind: Any) -> Sequence[Any]:
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return sorted(options, key=lambda option: option is not NoneType)


@cache
def _fields_of(kind: Any) -> Mapping[str, tuple[str, Any, bool]]:
    """Return attribute, type and whether it is required of each field, by its name in the file."""
    hints = get_type_hints(kind, include_extras=True)
    is_dashed = getattr(kind, "dashed_names", False)
    found = {}
    for each in fields(kind):
        form = _form_of(hints[each.name])[1] or FieldSpec()
        required = form.required or (each.default is MISSING and each.default_factory is MISSING)
        name = each.name.replace("_", "-") if is_dashed else each.name
        found[name if form.name is None else form.name] = (each.name, hints[each.name], required)
    found.pop("", None)
    return found


def _noun(option: Any) -> str:
    base = _form_of(option)[0]
    outer = get_origin(base) or base
    if isinstance(outer, type) and issubclass(outer, Enum):
        return f"one of {', '.join(str(each.value) for each in outer)}"
    return _NOUNS.get(outer, "a list" if outer is tuple else "a mapping")


def _example(form: FieldSpec | None) -> str | None:
    return None if form is None or form.example is None else f"for example {form.example}"
