"""Results with something in every field, for what only looks at how they are shown."""

import ast
import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints


def named(path: str) -> Any:
    """What a path of the form `module:attribute` names below this project's package."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(f"kafka_quotas.{module}"), attribute)


def filled(kind: Any, within: frozenset[Any] = frozenset()) -> Any:
    """A value of a type: every figure 1, every text "1", every collection with one item, nothing left out.

    A collection is empty that would hold another value of a type that it is `within`.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = {name: each for name, each in _hints(kind).items() if each is not ClassVar}
        return kind(**{name: filled(each, within | {kind}) for name, each in hints.items()})
    if origin in (Union, types.UnionType):
        return filled(next(each for each in arguments if each is not type(None)), within)
    if origin is tuple:
        is_circular = ... in arguments and _names_any(arguments, within)
        return () if is_circular else tuple(filled(each, within) for each in arguments if each is not ...)
    if origin is not None and issubclass(origin, Mapping):
        return {filled(arguments[0], within): filled(arguments[1], within)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return Path("1") if kind is Path else kind(1)


def _names_any(arguments: tuple[Any, ...], kinds: frozenset[Any]) -> bool:
    return any(each in kinds if isinstance(each, type) else _names_any(get_args(each), kinds) for each in arguments)


def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields.

    Names that a module has for type checkers only are looked up below the package.
    """
    module = import_module(kind.__module__)
    try:
        return get_type_hints(kind)
    except NameError:
        return get_type_hints(kind, localns=_checked_names(module))


def _checked_names(module: types.ModuleType) -> dict[str, Any]:
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: getattr(import_module(str(node.module)), alias.name)
        for node in imports
        if str(node.module).startswith("kafka_quotas.")
        for alias in node.names
    }
