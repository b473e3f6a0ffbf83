"""Options and arguments of commands, option groups, and the values of single options.

A command is a function. Its parameters are options and arguments, which their annotations declare, and groups: classes
of options that it takes as one value. A group may hold other groups, and may be extended by a subclass. A record whose
fields are declared as a `setting` is a group as well: its texts are read into the types of its fields. Help, manual
pages and completion see single options, in the order of the signature.

Typer 0.29 builds a pydantic validator for every option of the command that runs, which takes longer than all the rest
of an `alter`. Texts, numbers, choices and paths need none: `use_plain_values` gives them converters. Whatever else an
option takes stays with Typer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, dataclass_transform, get_args, get_origin

import typer
from typer.core import TyperOption
from typer.models import ParameterInfo, ParamMeta

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.setting import SettingSpec

_T = TypeVar("_T")
_INFO = "typer"
_SETTING = "kafka_quotas_setting"
_HEADINGS: dict[type[Any], str] = {}
_Convert = Callable[[Any], Any]


def option_info(*names: str, **settings: Any) -> Any:
    """Return an option for an annotation, with the settings that `typer.Option` takes besides.

    The last of its spellings has the name of its value, if it takes one: `--store URL`.
    """
    *others, last = names
    last, _, metavar = last.partition(" ")
    return typer.Option(..., *others, last, metavar=metavar or None, **settings)


def option(*names: str, default: Any = None, **settings: Any) -> Any:
    """Return a field of a group that is an option, see `option_info`."""
    return field(default=default, metadata={_INFO: option_info(*names, **settings)})


def flag(*names: str, **settings: Any) -> Any:
    """Return a field of a group that is an option without a value, off unless it is given."""
    return option(*names, default=False, **settings)


def required(*names: str, **settings: Any) -> Any:
    """Return a field of a group that is an option without a default."""
    return option(*names, default=MISSING, **settings)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(required,))
def option_group(heading: str) -> Callable[[type[_T]], type[_T]]:
    """Return a decorator that makes a class a group whose options stand below a heading in help."""

    def make(cls: type[_T]) -> type[_T]:
        # Making a repr takes longer than all the rest, at every start, and nothing shows one.
        made = dataclass(frozen=True, slots=True, kw_only=True, repr=False)(cls)
        _HEADINGS[made] = heading
        return made

    return make


class Without:
    """Names the options of a group that a command lacks, in the annotation of the group's parameter.

    Their fields have the value that the parameter's default, or else the group, gives them.
    """

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)


def parameter(name: str, kind: Any, default: Any, declared: Any) -> Any:
    """Return an option or argument by the name, type and default of its value, and its declaration."""
    info = copy(declared)
    info.default = ... if default in _REQUIRED else default
    return typer.main._get_param(ParamMeta(name=name, default=info, annotation=kind))  # noqa: SLF001 - Typer's own way


def setting_of(option: TyperOption) -> SettingSpec | None:
    """Return the setting that an option was made of, None for an option that was declared as such."""
    return getattr(option, _SETTING, None)


def group_value(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """Return a group made of the values of a command's parameters."""
    group = _group_of(kind, None, frozenset())
    value = None if group is None else group.value(values)
    assert isinstance(value, kind)
    return value


class _Member(NamedTuple):
    name: str
    default: object
    nested: "Group | None" = None
    parameter: Any = None
    kind: Any = None
    setting: SettingSpec | None = None


class Group(NamedTuple):
    """A function or a class with its parameters or fields."""

    make: Callable[..., Any]
    members: Sequence[_Member]
    is_optional: bool = False
    """Whether its value is None without its required option."""

    @property
    def parameters(self) -> list[Any]:
        """The options and arguments."""
        found: list[Any] = []
        for each in self.members:
            found += each.nested.parameters if each.nested else [each.parameter] if each.parameter else []
        return found

    def value(self, values: Mapping[str, Any]) -> Any:
        """Call it with the values of its options and arguments by their names."""
        taken: dict[str, object] = {}
        for name, default, nested, parameter, kind, setting in self.members:
            if kind is typer.Context:
                taken[name] = values[name]
            elif nested is not None:
                taken[name] = nested.value(values)
            elif parameter is not None and parameter.name in values:
                given = values[parameter.name]
                if parameter.multiple or parameter.nargs == -1:
                    given = list(given or ()) or (None if parameter.default is None else [])
                if setting is None:
                    taken[name] = given
                elif given not in (None, []):
                    taken[name] = _read(setting, kind, given)
            elif default is not MISSING:
                taken[name] = default
        if self.is_optional:
            required = next((each.name for each in self.members if each.default is MISSING), None)
            if required is not None and required not in taken:
                self._refuse_alone(taken, required)
                return None
        return self.make(**taken)

    def _refuse_alone(self, taken: Mapping[str, object], required: str) -> None:
        named = {each.name: each.setting.names[-1] for each in self.members if each.setting}
        refused = getattr(self.make, "refused_alone", ())
        given = [
            named[each.name]
            for each in self.members
            if each.name in refused and taken.get(each.name, each.default) != each.default
        ]
        if given:
            name = named[required]
            raise UsageError(f"{' and '.join(given)} without {name}", hint=f"give {name}, or leave the others out")


def group_of_function(function: Callable[..., Any]) -> Group:
    """Return a command's function as the group of its parameters."""
    members = []
    for each in signature(function, eval_str=True).parameters.values():
        group = _group_of(each.annotation, each.default, frozenset())
        if group is not None or each.annotation is typer.Context:
            members.append(_Member(each.name, MISSING, group, kind=each.annotation))
            continue
        kind, declared = _declared(each.annotation, typer.Option())
        members.append(_Member(each.name, MISSING, None, parameter(each.name, kind, each.default, declared)))
    return Group(function, members)


def _group_of(annotation: Any, default: object, without: frozenset[str]) -> Group | None:
    """Return the group that an annotation names, None for a single option or a plain value."""
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    is_optional = get_origin(kind) is UnionType
    if is_optional:
        kind = next(filter(_has_settings, get_args(kind)), None)
    elif any(isinstance(note, ParameterInfo) for note in notes):
        return None
    if not isinstance(kind, type) or not is_dataclass(kind):
        return None
    if not is_optional:
        without = without.union(*(note.names for note in notes if isinstance(note, Without)))
    return Group(kind, _members(kind, default, without, is_optional), is_optional)


def _has_settings(kind: Any) -> bool:
    return is_dataclass(kind) and any(SettingSpec in each.metadata for each in fields(kind))


def _members(kind: type[Any], given: object, without: frozenset[str], is_optional: bool) -> list[_Member]:
    made: list[_Member] = []
    for each in fields(kind):
        typed, declared = each.type, each.metadata.get(_INFO)
        if get_origin(typed) is Annotated:
            typed, declared = _declared(typed, declared)
        default = getattr(given, each.name) if isinstance(given, kind) else each.default
        setting = each.metadata.get(SettingSpec) if declared is None else None
        if setting is None and declared is None:
            made.append(_Member(each.name, default, _group_of(each.type, default, without)))
        elif each.name in without:
            made.append(_Member(each.name, default, setting=setting))
        elif setting is None:  # below the group's heading unless it names one itself
            info: Any = copy(declared)
            info.rich_help_panel = info.rich_help_panel or _HEADINGS.get(kind)
            made.append(_Member(each.name, default, None, parameter(each.name, typed, default, info)))
        else:
            option = _as_option(each.type, setting, default, is_optional=is_optional)
            made.append(_Member(each.name, each.default, None, option, each.type, setting))
    return made


def _declared(annotation: Any, otherwise: Any) -> tuple[Any, Any]:
    """Return the type that an annotation names, and the option or argument that it declares."""
    if get_origin(annotation) is not Annotated:
        return annotation, otherwise
    typed, *notes = get_args(annotation)
    return typed, next((note for note in notes if isinstance(note, ParameterInfo)), otherwise)


def _shape(kind: Any) -> tuple[Any, type[Any] | None]:
    """Return the type of a setting's value or values, and the type that holds several."""
    holder, items = get_origin(kind), get_args(kind)
    if holder in (UnionType, Annotated):
        return _shape(next(each for each in items if each is not type(None)))
    if holder is frozenset or (holder is tuple and items[-1] is ...):
        return items[0], holder
    return kind, None


def _as_option(typed: Any, setting: SettingSpec, default: Any, *, is_optional: bool) -> Any:
    item, holder = _shape(typed)
    kind: Any = item if setting.form is None else str
    info = typer.Option(
        ...,
        *setting.names,
        metavar=setting.metavar,
        help=setting.help,
        min=setting.least,
        max=setting.most,
        rich_help_panel=setting.section.capitalize(),
    )
    if default is MISSING:
        default = None if is_optional else default
    elif default in (None, "", (), frozenset()):
        default = None  # which nobody could type
    elif setting.form is not None:
        default = setting.form.write(default)
    made = parameter(setting.parameter, kind if holder is None else list[kind], default, info)
    setattr(made, _SETTING, setting)
    return made


def _read(setting: SettingSpec, kind: Any, given: Any) -> Any:
    form, (_, holder) = setting.form, _shape(kind)
    try:
        if form is None:
            return given if holder is None else holder(given)
        if holder is None:
            return form.read(given)
        return form.read_all(given) if form.read_all is not None else holder(map(form.read, given))
    except UsageError as error:
        raise UsageError(f"{setting.names[-1]}: {error.message}", hint=error.hint) from None


_REQUIRED: Final = (MISSING, Parameter.empty)


def _coerce(convert: _Convert, value: Any, param: Any, ctx: Any) -> Any:
    """Convert the value or values of a parameter, None or an empty tuple where it was not given."""
    several = param.multiple or param.nargs == -1
    if value is None:
        return () if several else None
    try:
        return [convert(each) for each in value] if several else convert(value)
    except ValueError as error:
        raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def use_plain_values(parameters: Iterable[Any]) -> None:
    """Let parameters convert plain values without pydantic, which only those that take others then load."""
    for each in parameters:
        kind, info = each.type_descriptor.annotation, each.type_descriptor.parameter_info
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        checks = (info.exists, info.writable, info.resolve_path, info.allow_dash, info.path_type, not info.file_okay)
        convert: _Convert | None = None
        if not isinstance(kind, type) or info.parser is not None or info.clamp:
            pass
        elif issubclass(kind, Enum):
            convert = partial(_choice, kind)
        elif kind in (int, float):
            convert = partial(_number, kind, least=info.min, most=info.max)
        elif kind is not Path or not (any(checks) or not info.dir_okay):
            convert = _PLAIN_KINDS.get(kind)
        if convert is not None:
            each._runtime_param = SimpleNamespace(coerce=partial(_coerce, convert))  # noqa: SLF001 - see the module


def _choice(choices: type[Enum], value: Any) -> Enum:
    if isinstance(value, choices):
        return value
    for choice in choices:
        if choice.value.lower() == str(value).lower():  # JSON is json to a person
            return choice
    raise ValueError(f"{value!r} is not one of {', '.join(str(choice.value) for choice in choices)}")


def _number(kind: type[int] | type[float], value: Any, *, least: float | None, most: float | None) -> float:
    try:
        number = kind(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a {'whole ' if kind is int else ''}number") from None
    if (least is not None and not number >= least) or (most is not None and not number <= most):
        limits = [f"at least {least}"] * (least is not None) + [f"at most {most}"] * (most is not None)
        raise ValueError(f"{value} is out of range: it must be {' and '.join(limits)}")
    return number


def _flag(value: Any) -> bool:
    """Convert a flag, which may be a text from an environment variable."""
    if isinstance(value, bool):
        return value
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(value).lower() not in known:
        raise ValueError(f"{value!r} is neither true nor false")
    return known[str(value).lower()]


_PLAIN_KINDS: Final[Mapping[Any, _Convert]] = {Path: Path, bool: _flag, str: str}
