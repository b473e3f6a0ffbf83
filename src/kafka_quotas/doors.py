"""Doors: packages that name what others may use, and import it when it is first used.

A door's `__init__` imports its names under `TYPE_CHECKING`, which is all that type checkers see and the one place where
the names are listed.

**Source:** https://scientific-python.org/specs/spec-0001, with the imports in place of a stub.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import get_data
from typing import Any


@cache
def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a door."""

    @cache
    def homes() -> dict[str, str]:
        tree = ast.parse(get_data(package, "__init__.py") or b"")
        late = [each for block in tree.body if isinstance(block, ast.If) for each in block.body]
        return {name.name: str(each.module) for each in late if isinstance(each, ast.ImportFrom) for name in each.names}

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(homes())
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(homes()[name]), name)
        setattr(sys.modules[package], name, found)  # the next use finds it without this function
        return found

    return get, lambda: sorted(homes())
