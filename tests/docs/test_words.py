"""Words that this project retired stay away from names and docstrings of the package."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "kafka_quotas"
RETIRED = (
    "ask audience batch_order broker_directory bucket_memory claim cluster_facts conclusion connection_book "
    "control_desk count_ring decider desire drop_topics durations entrance exchange filler form front gate "
    "given_options ground grow_topics grown_topic harvest held_back intake interruption kafka_channel "
    "kafka_connection kafka_handshake kafka_login kafka_peer keeping known_client ledger left_alone make_topics "
    "mutated_topic notice obstacle order_treatment pending_charges per place_quota produce_cut questioned_client "
    "raw_command relay relay_end relay_room remember replaced_file request_side response_side run_order "
    "same_place sample_ring settle shortcut spans spelling stamp stand state_keeper store_follower terms "
    "terms_book threshold_board told_apart_by topic_control topic_directory topic_questions treatment undoing "
    "venue verbatim_quotas waiting wanted_topic way whole_treatment"
)
"""Former names of modules and classes, for which the glossary has other words."""
RETIRED_IN_NAMES = re.compile(
    "audience|board|book|conclusion|desire|desk|entrance|filler|gate|harvest|intake|ledger|memories|obstacles|"
    "picture|relay|said|shortcut|tells|told|treatment|undoing|unclaimed|venue|verbatim|whoever"
)
"""Words that no name of a module, class, function, argument, variable or attribute has as a part."""
RETIRED_IN_PROSE = re.compile(
    r"\b(told|tells?|said|so many|goes on|comes to|whoever|treatments?|gates?)\b", re.IGNORECASE
)


RETIRED_FOR_USERS = re.compile(
    r"\bgo(es)? before (it|default|another|user|client)|\btakes? out\b|nobody gets (it|its)\b|\bbecame of\b|"
    r"\b(is|are) (not )?meant\b(?! to)|same already|forgives|THROTTLE OFF|\bgrain\b|books (not )?met|: in order\b|"
    r"this is the answer (of|for)|\bmend\b"
)
"""Idioms to avoid: say *takes precedence*, *has no effect*, *excludes*, *outcome*, *intended*, *OK*."""

RETIRED_BY_ROOM = {
    ("pipeline",): "harvest told_apart_by settle judge held_back stamp",
    ("wire",): "told tell said behind spelling treatment walk drop_topics grow_topics",
    ("enforcement",): "told tell tells said say terms book ledger gate desk relay notice treatment place places front "
    "fronts way arrival entrance exchange remember",
    ("stores", "commands/quotas", "commands/declarative", "commands/insight", "core/changes", "core/quota_files"): (
        "told tell tells said behind facts stand standing standings opposite verbatim left_alone audience actor "
        "treatment gate way"
    ),
}
"""Words that are whole names of nothing in some rooms."""


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the package by its path below it."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Every node of a module, which each of these tests walks through."""
    return tuple(ast.walk(tree))


def as_words(name: str) -> str:
    """A name in any case, spelled as a module's name would be."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def names(path: str, tree: ast.Module) -> Iterator[str]:
    """Every name that a module defines, its own included."""
    yield Path(path).stem
    for node in nodes(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
            ):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def docstrings(path: str, tree: ast.Module) -> Iterator[str]:
    """Every docstring, those of fields and constants included, but for help texts."""
    for node in nodes(tree):
        if isinstance(body := getattr(node, "body", None), list) and not is_command(path, node):
            yield from (
                each.value.value
                for each in body
                if isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            )


@cache
def commands() -> frozenset[str]:
    """The functions whose docstrings are help texts, by the tables of the command tree."""
    texts = (node.value for tree in trees().values() for node in nodes(tree) if isinstance(node, ast.Constant))
    return frozenset(
        text.rpartition(":")[2] for text in texts if isinstance(text, str) and re.fullmatch(r"[\w.]+:\w+", text)
    )


def is_command(path: str, node: ast.AST) -> bool:
    """Whether a docstring is the help of a command."""
    if not path.startswith("cli/") or not isinstance(node, ast.FunctionDef):
        return False
    return node.name in commands() or any(".command" in ast.unparse(each) for each in node.decorator_list)


def shown_texts() -> Iterator[tuple[str, str]]:
    """Every text that users may see: in messages, help, scenarios, pages for browsers, and documentation."""
    for path, tree in trees().items():
        ours = {id(each.value) for each in nodes(tree) if isinstance(each, ast.Expr)}
        for node in nodes(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in ours:
                yield path, node.value
            if is_command(path, node):
                yield path, ast.get_docstring(node) or ""
    texts = [path for suffix in ("yaml", "js", "html") for path in PACKAGE.rglob(f"*.{suffix}")]
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "project"]
    for path in (ROOT / "README.md", *texts, *pages):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_no_text_for_users_has_a_translated_idiom() -> None:
    texts = list(shown_texts())
    assert len(texts) > 10_000
    assert {(path, found[0]) for path, text in texts if (found := RETIRED_FOR_USERS.search(text))} == set()


def test_no_retired_word_names_a_module_or_a_class() -> None:
    found = {as_words(Path(path).stem): path for path in trees()}
    for path, tree in trees().items():
        found |= {as_words(node.name): path for node in nodes(tree) if isinstance(node, ast.ClassDef)}
    assert {name: path for name, path in found.items() if name in RETIRED.split()} == {}


def test_no_name_has_a_retired_word() -> None:
    found = {
        (word, path)
        for path, tree in trees().items()
        for name in names(path, tree)
        for word in filter(RETIRED_IN_NAMES.fullmatch, as_words(name).split("_"))
    }
    assert found == set()


def test_no_docstring_has_a_retired_word() -> None:
    found = {
        (word.lower(), path)
        for path, tree in trees().items()
        for text in docstrings(path, tree)
        for word in RETIRED_IN_PROSE.findall(text)
    }
    assert found == set()


def identifiers(tree: ast.Module) -> set[str]:
    """Every function, argument, variable and attribute that a module names, without leading underscores."""
    values = (getattr(node, field, None) for node in nodes(tree) for field in ("name", "arg", "attr", "id"))
    return {value.strip("_") for value in values if isinstance(value, str)}


@pytest.mark.parametrize("rooms", RETIRED_BY_ROOM, ids="-".join)
def test_no_retired_word_is_a_name_in_its_room(rooms: tuple[str, ...]) -> None:
    words = set(RETIRED_BY_ROOM[rooms].split())
    modules = {path: tree for path, tree in trees().items() if path.startswith(tuple(f"{room}/" for room in rooms))}
    found = {path: words & identifiers(tree) for path, tree in modules.items()}
    assert modules
    assert {path: used for path, used in found.items() if used} == {}


def documented(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Everything that may have a docstring, with its first paragraph or an empty text."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            yield node, (ast.get_docstring(node) or "").split("\n\n")[0]


def test_summaries_are_one_sentence_of_at_most_100_characters() -> None:
    odd = [
        f"{path}: {summary}"
        for path, tree in trees().items()
        for node, summary in documented(tree)
        if summary.startswith(("Nothing", "Never;"))
        or (
            not isinstance(node, ast.Module)
            and not is_command(path, node)
            and (";" in (line := summary.split("\n")[0]) or len(line) > 100)
        )
    ]
    assert odd == []


def test_no_summary_outside_the_package_has_a_semicolon() -> None:
    paths = [path for folder in ("tests", "benchmarks", "fuzz", "generators") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 100
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    modules = {path: ast.parse(text) for path, text in texts.items() if ";" in text}
    odd = {f"{path}: {summary}" for path, tree in modules.items() for _, summary in documented(tree) if ";" in summary}
    assert odd == set()
