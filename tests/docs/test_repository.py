"""The shape of the repository: the doors at its root, the size of files and folders, and lists of files."""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes.scheduling import LONGEST

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.wire.protocol.api_table import ErrorCode

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["cli", "commands", "enforcement"])
def test_the_root_links_open_the_packages(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("src") / "kafka_quotas" / name
    assert (link / "__init__.py").is_file()


def test_no_file_is_longer_than_500_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "src").rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert long == {}


def numbers_of_the_protocol(tree: ast.Module) -> Iterator[str]:
    """Yield what names an API or an error by its number: constants, comparisons and arguments."""
    members = {name: {int(member)} for name, member in [*ApiKey.__members__.items(), *ErrorCode.__members__.items()]}
    numbered = {"api_key", "error_code"}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.Assign):
            (target, *_) = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            name = getattr(target, "id", "").lstrip("_")
            if values(node.value) & members.get(name, set()) or (name in numbered and values(node.value)):
                yield f"{node.lineno}: {name}"
        elif isinstance(node, ast.Compare) and name_of(node.left) in numbered:
            if not isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE) and values(node.comparators[0]):
                yield f"{node.lineno}: {name_of(node.left)}"
        elif isinstance(node, ast.keyword) and node.arg in numbered and values(node.value):
            yield f"{node.lineno}: {node.arg}"


def values(node: ast.expr | None) -> set[int]:
    """The integers that an expression consists of: one, or those of a tuple or set."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.Set) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant) and type(part.value) is int}


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_apis_and_errors_are_named_not_numbered() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{place}"
        for path in (ROOT / "src").rglob("*.py")
        if path.name not in ("api_key.py", "error_code.py")
        for place in numbers_of_the_protocol(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()


@pytest.mark.parametrize(
    "line", ["_METADATA: Final = 3", "header.api_key == 3", "error_code in (0, 89)", "ask(api_key=18)"]
)
def test_a_number_is_found(line: str) -> None:
    assert list(numbers_of_the_protocol(ast.parse(line)))


def test_no_folder_has_more_than_20_entries() -> None:
    folders = [each for top in ("src", "tests") for each in (ROOT / top).rglob("*") if each.is_dir()]
    entries = {str(each.relative_to(ROOT)): [*each.iterdir()] for each in folders if each.name != "__pycache__"}
    counts = {name: sum(each.name != "__pycache__" for each in inside) for name, inside in entries.items()}
    assert {name: count for name, count in counts.items() if count > 20} == {}


@pytest.mark.parametrize("name", LONGEST)
def test_the_longest_files_exist(name: str) -> None:
    assert (ROOT / "tests" / name).is_file()


@pytest.mark.parametrize("script", ["Makefile", ".ci/run", ".ci/other-pythons", ".ci/newer-spark"])
def test_the_tests_that_a_script_names_exist(script: str) -> None:
    """One that was renamed would be missed in the next long run, and a left-out one would come back."""
    text = (ROOT / script).read_text(encoding="utf-8")
    named = re.findall(r"\b(?:unit|property|conformance|integration|chaos)/[^\s)]+", text)
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


@pytest.mark.parametrize("folder", ["benchmarks", "fuzz", "generators"])
def test_what_no_other_test_runs_imports_what_there_is(folder: str) -> None:
    """A renamed class would be missed there when somebody measures next."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py"))}
    assert len(trees) > 1
    named = {
        (path.name, node.module, alias.name)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("kafka_quotas", "tests")
        for alias in node.names
    }
    assert [each for each in sorted(named) if not exists(*each[1:])] == []


def exists(module: str, name: str) -> bool:
    """Say whether a module has a name, or a package has a module of that name."""
    loaded = importlib.import_module(module)
    return hasattr(loaded, name) or (
        hasattr(loaded, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None
    )
