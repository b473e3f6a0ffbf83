"""Option groups, a class of options that a command takes as one value, and the values of single options.

Typer reads options from the signature of a function. `expand_groups` replaces each group in a signature by its fields,
in their order and with their names, so that Typer, the manual pages and completion see single options, and the command
gets the group as one value. A group may hold other groups, and may be extended by a subclass. A record whose fields are
declared as a `setting` is a group as well: its texts are read into the types of its fields.

Typer 0.29 builds a pydantic validator for every option of the command that runs, which takes longer than all the rest
of an `alter`. Texts, numbers, choices and paths need none: `use_plain_values` gives their options a converter from
here. Whatever else an option takes stays with Typer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, dataclass_transform, get_args, get_origin

import typer
from typer.core import TyperOption
from typer.models import ParameterInfo

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.setting import SettingSpec

_T = TypeVar("_T")
_R = TypeVar("_R")
_INFO = "typer"
_SETTING = "kafka_quotas_setting"
_ANNOTATED: Any = Annotated
_HEADINGS: dict[type[Any], str] = {}
_Convert = Callable[[Any], Any]


def option_info(*names: str, **settings: Any) -> Any:
    """Return an option for an annotation, with the settings that `typer.Option` takes besides.

    The last of its spellings has the name of its value, if it takes one: `--store URL`.
    """
    *others, last = names
    last, _, metavar = last.partition(" ")
    return typer.Option(*others, last, metavar=metavar or None, **settings)


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


def expand_groups(command: Callable[..., _R]) -> Callable[..., _R]:
    """Return the command with the options of its groups as parameters, itself where it has no groups.

    A group that is the default of a parameter gives its options their defaults.
    """
    groups: dict[str, _Group] = {}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        group = _group_of(parameter.annotation, parameter.default, frozenset())
        if group is None:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        else:
            groups[parameter.name] = group
            parameters += group.parameters
    if not groups:
        return command
    grouped = {each.name for group in groups.values() for each in group.parameters}

    @wraps(command)
    def with_single_options(**values: Any) -> _R:
        single = {name: value for name, value in values.items() if name not in grouped}
        return command(**single, **{name: group.value(values) for name, group in groups.items()})

    with_single_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    with_single_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_single_options


def typer_parameters(parameters: Iterable[Parameter]) -> list[Any]:
    """Return the parameters of a command as Typer builds them."""

    def carrier(**_: Any) -> None:
        """Carry the options in a signature that Typer reads."""

    signature = Signature(list(parameters))
    carrier.__signature__ = signature  # type: ignore[attr-defined]
    carrier.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    app = typer.Typer(add_completion=False)
    app.command(add_help_option=False)(carrier)
    return list(typer.main.get_command(app).params)


def group_value(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """Return a group made of the values of a command's parameters."""
    group = _group_of(kind, None, frozenset())
    value = None if group is None else group.value(values)
    assert isinstance(value, kind)
    return value


def setting_of(option: TyperOption) -> SettingSpec | None:
    """Return the setting that an option was made of, None for an option that was declared as such."""
    return getattr(option.type_descriptor.parameter_info, _SETTING, None)


class _Member(NamedTuple):
    field: Field[Any]
    default: object
    nested: "_Group | None" = None
    setting: SettingSpec | None = None
    parameter: Parameter | None = None


class _Group(NamedTuple):
    kind: type[Any]
    members: Sequence[_Member]
    is_optional: bool
    """Whether the group is None without its required option."""

    @property
    def parameters(self) -> list[Parameter]:
        found: list[Parameter] = []
        for each in self.members:
            found += each.nested.parameters if each.nested else [each.parameter] if each.parameter else []
        return found

    def value(self, values: Mapping[str, Any]) -> object:
        taken: dict[str, object] = {}
        for each, default, nested, setting, parameter in self.members:
            if nested is not None:
                taken[each.name] = nested.value(values)
            elif setting is not None:
                given = values.get(setting.parameter)
                if given not in (None, (), []):
                    taken[each.name] = _read(setting, each.type, given)
            elif parameter is not None and each.name in values:
                taken[each.name] = values[each.name]
            elif default is not MISSING:
                taken[each.name] = default
        if self.is_optional:
            required = next((each.name for each in fields(self.kind) if each.default is MISSING), None)
            if required is not None and required not in taken:
                self._refuse_alone(taken, required)
                return None
        return self.kind(**taken)

    def _refuse_alone(self, taken: Mapping[str, object], required: str) -> None:
        named = {each.field.name: each.setting.names[-1] for each in self.members if each.setting}
        defaults = {each.name: each.default for each in fields(self.kind)}
        refused = getattr(self.kind, "refused_alone", ())
        given = [
            named[name] for name in defaults if name in refused and taken.get(name, defaults[name]) != defaults[name]
        ]
        if given:
            name = named[required]
            raise UsageError(f"{' and '.join(given)} without {name}", hint=f"give {name}, or leave the others out")


def _group_of(annotation: Any, default: object, without: frozenset[str]) -> _Group | None:
    """Return the group that an annotation names, None for a single option or a plain value."""
    kind, *notes = _parts(annotation)
    is_optional = get_origin(kind) is UnionType
    if is_optional:
        kind = next(
            (
                each
                for each in get_args(kind)
                if is_dataclass(each) and any(SettingSpec in part.metadata for part in fields(each))
            ),
            None,
        )
    elif any(isinstance(note, ParameterInfo) for note in notes):
        return None
    if not isinstance(kind, type) or not is_dataclass(kind):
        return None
    if not is_optional:
        without = without.union(*(note.names for note in notes if isinstance(note, Without)))
    return _Group(kind, _members(kind, default, without, is_optional), is_optional)


def _members(kind: type[Any], given: object, without: frozenset[str], is_optional: bool) -> list[_Member]:
    made: list[_Member] = []
    for each in fields(kind):
        typed, declared = each.type, each.metadata.get(_INFO)
        if get_origin(typed) is Annotated:
            typed, *notes = get_args(typed)
            declared = next((note for note in notes if isinstance(note, ParameterInfo)), declared)
        default = getattr(given, each.name) if isinstance(given, kind) else each.default
        setting = each.metadata.get(SettingSpec) if declared is None else None
        if setting is None and declared is None:
            made.append(_Member(each, default, _group_of(each.type, default, without)))
            continue
        if each.name in without:
            made.append(_Member(each, default, None, setting))
            continue
        if setting is None:  # Typer knows it by this annotation, below a heading unless it names one itself
            info: Any = copy(declared)
            info.rich_help_panel = info.rich_help_panel or _HEADINGS.get(kind)
            name, annotated, shown = each.name, _ANNOTATED[typed, info], default
        else:
            shown = _option_default(setting, default)
            name, annotated = setting.parameter, _as_option(each, setting, is_optional=shown is None)
        if shown is MISSING:
            shown = None if is_optional else Parameter.empty
        parameter = Parameter(name, Parameter.KEYWORD_ONLY, default=shown, annotation=annotated)
        made.append(_Member(each, default, None, setting, parameter))
    return made


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)


def _shape(kind: Any) -> tuple[Any, type[Any] | None]:
    """Return the type of a setting's value or values, and the type that holds several."""
    holder, items = get_origin(kind), get_args(kind)
    if holder in (UnionType, Annotated):
        return _shape(next(each for each in items if each is not type(None)))
    if holder is frozenset or (holder is tuple and items[-1] is ...):
        return items[0], holder
    return kind, None


def _option_default(setting: SettingSpec, default: Any) -> Any:
    """Return the default of a setting as it would be typed, None if it is nothing that could be typed."""
    if default is MISSING:
        return default
    if default in (None, "", (), frozenset()):
        return None
    return default if setting.form is None else setting.form.write(default)


def _as_option(each: Field[Any], setting: SettingSpec, *, is_optional: bool) -> Any:
    item, holder = _shape(each.type)
    kind: Any = item if setting.form is None else str
    info = typer.Option(
        *setting.names,
        metavar=setting.metavar,
        help=setting.help,
        min=setting.least,
        max=setting.most,
        rich_help_panel=setting.section.capitalize(),
    )
    setattr(info, _SETTING, setting)
    if holder is not None:
        kind = list[kind]
    return _ANNOTATED[kind | None if is_optional else kind, info]


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


def use_plain_values(parameters: Iterable[Any]) -> None:
    """Let parameters convert plain values without pydantic, which only those with another value then load."""
    for parameter in parameters:
        parameter._runtime_param = _PLAIN_VALUES  # noqa: SLF001 - see the module


class _PlainValues:
    """Stands in for Typer's converter of any parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the value or values of a parameter, None or an empty tuple where it was not given."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        convert = _converter(param)
        if convert is None:
            param._runtime_param = None  # noqa: SLF001 - Typer then makes its own
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
        try:
            return [convert(each) for each in value] if several else convert(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


_PLAIN_VALUES: Final = _PlainValues()


def _converter(parameter: Any) -> _Convert | None:
    """Return the converter of a parameter's type, None where it needs Typer's own."""
    kind, info = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if not isinstance(kind, type) or info.parser is not None or info.clamp:
        return None
    if kind is Path:
        checked = info.exists or info.writable or info.resolve_path or info.allow_dash or info.path_type
        return None if checked or not info.file_okay or not info.dir_okay else Path
    if issubclass(kind, Enum):
        return partial(_choice, kind)
    if kind in (int, float):
        return partial(_number, kind, least=info.min, most=info.max)
    return _flag if kind is bool else str if kind is str else None


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
