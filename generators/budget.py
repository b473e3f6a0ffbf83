"""Counts the source by room and the words of pages, and fails beyond `[tool.kafka-quotas.budget]` in pyproject.toml.

Run it by `python -m generators.budget`. Lines and statements are both counted, so that packing lines gains nothing, and
data files and generators are listed beside them, so that code does not hide there. A module is a file other than
`__init__.py`; statements are those of the syntax tree without docstrings.
"""

import ast
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from typer.core import TyperOption

from generators.documentation.documents import commands

ROOT: Final = Path(__file__).resolve().parent.parent
_SOURCE: Final = Path("src/kafka_quotas")
_SHORT, _LONG = 60, 500
_RECORD_BASES: Final = ("NamedTuple", "TypedDict", "Struct")
_LARGEST_COMMAND: Final = "daemon run"
"""The command that most_options_of_a_command leaves out, for it takes every setting of the daemon."""
_OTHER_PAGES: Final = ("docs/reference/commands/", "docs/reference/output.md", "docs/scenarios/")
"""Pages that come from the help texts and the schemas, and those that measure the scenarios."""
_AT_LEAST: Final = frozenset({"median_module"})


def source_figures(root: Path) -> dict[str, float]:
    """Return what is counted of the files below `src`, by the names of the budget."""
    files = sorted((root / _SOURCE).rglob("*.py"))
    texts = {path.relative_to(root / _SOURCE): path.read_text(encoding="utf-8") for path in files}
    lines = {path: text.count("\n") for path, text in texts.items()}
    modules = {path: count for path, count in lines.items() if path.name != "__init__.py"}
    trees = [ast.parse(text) for text in texts.values()]
    rooms: Counter[str] = Counter()
    for path, count in modules.items():
        rooms[path.parts[0]] += count
    return {
        "lines": sum(lines.values()),
        "statements": sum(_is_statement(node) for tree in trees for node in ast.walk(tree)),
        "modules": len(modules),
        "median_module": statistics.median(modules.values()),
        f"modules_under_{_SHORT}": sum(count < _SHORT for count in modules.values()),
        f"modules_over_{_LONG}": sum(count > _LONG for count in modules.values()),
        "records": sum(_is_record(node) for tree in trees for node in ast.walk(tree)),
        **{room: count for room, count in sorted(rooms.items()) if not room.endswith(".py")},
    }


def option_figures() -> dict[str, float]:
    """Return what is counted of the options of all commands, by the names of the budget."""
    named = {
        context.command_path.partition(" ")[2]: [
            each.opts[0] for each in command.params if isinstance(each, TyperOption)
        ]
        for command, context in commands()
    }
    return {
        "options": sum(map(len, named.values())),
        "distinct_options": len({option for options in named.values() for option in options}),
        "most_options_of_a_command": max(len(named[path]) for path in named if path != _LARGEST_COMMAND),
    }


def page_figures(root: Path) -> dict[str, float]:
    """Return the words of the pages that are written by hand, by the name of the budget."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    counted = (path for path in pages if not path.relative_to(root).as_posix().startswith(_OTHER_PAGES))
    return {"words_of_docs": sum(len(path.read_text(encoding="utf-8").split()) for path in counted)}


def over_budget(figures: Mapping[str, float], budget: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each figure that is beyond its budget or has none, and for each budget without a figure."""
    for name in sorted(figures.keys() ^ budget.keys()):
        yield f"{name}: {'no budget' if name in figures else 'a budget of nothing that is counted'}"
    for name in figures.keys() & budget.keys():
        if name in _AT_LEAST and figures[name] < budget[name]:
            yield f"{name}: {figures[name]:g}, and the budget is at least {budget[name]:g}"
        elif name not in _AT_LEAST and figures[name] > budget[name]:
            yield f"{name}: {figures[name]:g}, and the budget is {budget[name]:g}"


def main() -> int:
    """Print the figures beside their budgets, and return 1 if one is beyond it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        budget: dict[str, float] = tomllib.load(file)["tool"]["kafka-quotas"]["budget"]
    figures = source_figures(ROOT) | option_figures() | page_figures(ROOT)
    for name, count in figures.items():
        sys.stdout.write(f"{name:<26}{count:>8g}  of {budget.get(name, 0):g}\n")
    for title, files in (
        ("data files", _data_files(ROOT)),
        ("generators", sorted((ROOT / "generators").rglob("*.py"))),
    ):
        size = sum(path.read_bytes().count(b"\n") for path in files)
        sys.stdout.write(f"{title}: {len(files)} files, {size} lines\n")
    found = list(over_budget(figures, budget))
    for line in found:
        sys.stderr.write(f"{line}\n")
    if found:
        sys.stderr.write(
            "cut elsewhere, or say in the same commit why more is needed: CONTRIBUTING.md, Keep it small\n"
        )
    return 1 if found else 0


def _is_statement(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.stmt) and not is_text


def _is_record(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and (
        any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        or any(name in ast.unparse(base) for base in node.bases for name in _RECORD_BASES)
    )


def _data_files(root: Path) -> list[Path]:
    listed = (path for path in (root / _SOURCE).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in listed if path.suffix not in (".py", ".typed", ".so"))


if __name__ == "__main__":
    sys.exit(main())
