"""Option groups: a class of options that a command takes as one value.

Typer reads options from the signature of a function. `expand_groups` replaces each group in a signature by its fields,
in their order and with their names, so that Typer, the manual pages and completion see single options, and the command
gets the group as one value. A group may hold other groups, and may be extended by a subclass.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_origin

import typer
from typer.core import TyperOption
from typer.models import OptionInfo, ParameterInfo

from kafka_quotas.cli.framework.commands import typer_parameters

_T = TypeVar("_T")
_R = TypeVar("_R")
_INFO = "typer"
_ANNOTATED: Any = Annotated
_HEADINGS: dict[type[Any], str] = {}


def option(*names: str, default: Any = None, **settings: Any) -> Any:
    """Return a field of a group that is an option, with the settings that `typer.Option` takes besides.

    The last of its spellings has the name of its value, if it takes one: `--store URL`.
    """
    *others, last = names
    last, _, metavar = last.partition(" ")
    return field(default=default, metadata={_INFO: typer.Option(*others, last, metavar=metavar or None, **settings)})


def required(*names: str, **settings: Any) -> Any:
    """Return a field of a group that is an option without a default."""
    return option(*names, default=MISSING, **settings)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(required,))
def option_group(heading: str) -> Callable[[type[_T]], type[_T]]:
    """Return a decorator that makes a class a group whose options stand below a heading in help.

    The group is a frozen dataclass whose fields are options, other groups or plain values.
    """

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

    Raises:
        TypeError: Two options share a name or a spelling.
    """
    groups: dict[str, _Group] = {}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        group = _group_of(parameter.annotation, parameter.default, frozenset())
        if group is None:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        else:
            groups[parameter.name] = group
            parameters += group.parameters()
    if not groups:
        return command
    _refuse_shared(command.__qualname__, parameters)
    grouped = {parameter.name for group in groups.values() for parameter in group.parameters()}

    @wraps(command)
    def with_single_options(**values: Any) -> _R:
        single = {name: value for name, value in values.items() if name not in grouped}
        return command(**single, **{name: group.value(values) for name, group in groups.items()})

    with_single_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    with_single_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_single_options


def typer_options(group: type[Any]) -> list[TyperOption]:
    """Return the options of a group as Typer builds them, for commands that do not name the group."""
    parameters = _Group(kind=group, default=None, without=frozenset()).parameters()
    return [each for each in typer_parameters(parameters) if isinstance(each, TyperOption)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    kind: type[Any]
    default: object
    """A value of the group, or an empty mark."""
    without: frozenset[str]

    def parameters(self) -> Iterator[Parameter]:
        for each in fields(self.kind):
            nested = self._nested(each)
            annotation = _annotation(each, _HEADINGS.get(self.kind))
            if nested is not None:
                yield from nested.parameters()
            elif annotation is not None and each.name not in self.without:
                default = self._default_of(each)
                default = Parameter.empty if default is MISSING else default
                yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def value(self, values: Mapping[str, Any]) -> object:
        taken: dict[str, object] = {}
        for each in fields(self.kind):
            nested = self._nested(each)
            default = self._default_of(each)
            if nested is not None:
                taken[each.name] = nested.value(values)
            elif each.name in values and each.name not in self.without and _annotation(each) is not None:
                taken[each.name] = values[each.name]
            elif default is not MISSING:
                taken[each.name] = default
        return self.kind(**taken)

    def _nested(self, each: Field[Any]) -> "_Group | None":
        return _group_of(each.type, self._default_of(each), self.without)

    def _default_of(self, each: Field[Any]) -> Any:
        return getattr(self.default, each.name) if isinstance(self.default, self.kind) else each.default


def _group_of(annotation: Any, default: object, without: frozenset[str]) -> _Group | None:
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if not isinstance(kind, type) or not is_dataclass(kind) or any(isinstance(note, ParameterInfo) for note in notes):
        return None
    left_out = without.union(*(note.names for note in notes if isinstance(note, Without)))
    return _Group(kind=kind, default=default, without=left_out)


def _annotation(each: Field[Any], heading: str | None = None) -> Any:
    """Return the annotation by which Typer knows a field as an option, None for a plain value.

    The option stands below the heading unless it names one itself.
    """
    kind, *notes = (each.type, each.metadata[_INFO]) if _INFO in each.metadata else get_args(each.type) or (each.type,)
    infos = [note for note in notes if isinstance(note, ParameterInfo)]
    if not infos:
        return None
    info = copy(infos[0])
    info.rich_help_panel = info.rich_help_panel or heading
    return _ANNOTATED[kind, info]


def _refuse_shared(command: str, parameters: list[Parameter]) -> None:
    seen: set[str] = set()
    for parameter in parameters:
        for name in (parameter.name, *_spellings(parameter.annotation)):
            if name in seen:
                raise TypeError(f"{command}: {name} is an option of two groups")
            seen.add(name)


def _spellings(annotation: Any) -> Iterator[str]:
    for info in get_args(annotation)[1:]:
        if isinstance(info, OptionInfo):
            # Typer takes the first spelling for the default until it has seen the annotation.
            for names in (info.default, *(info.param_decls or ())):
                yield from names.split("/") if isinstance(names, str) else ()
