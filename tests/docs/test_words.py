"""Names that the glossary retired stay away: no class, function or module of the package has one of them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
SOURCES = sorted((ROOT / "src" / "kafka_quotas").rglob("*.py"))


def retired() -> set[str]:
    """The words with a dagger in the last column, as they would be spelled in a module's name."""
    words = re.findall(r"([A-Za-z ]+)†", GLOSSARY)
    return {word.strip().lower().replace(" ", "_") for word in words}


def names() -> dict[str, str]:
    """Every module and every class of the package, spelled as a module's name would be, with where it is."""
    found = {path.stem: str(path.relative_to(ROOT)) for path in SOURCES}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                spelled = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name.lstrip("_")).lower()
                found[spelled] = f"{path.relative_to(ROOT)}: {node.name}"
    return found


def test_the_glossary_retires_words() -> None:
    assert {"gate", "relay_end", "kafka_peer", "run_order"} <= retired()


def test_no_retired_word_names_a_module_or_a_class() -> None:
    words = retired()
    assert {name: place for name, place in names().items() if name in words} == {}


def identifiers(source: str) -> set[str]:
    """Every function, argument, variable and attribute of a module, without leading underscores."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        for field in ("name", "arg", "attr", "id"):
            value = getattr(node, field, None)
            found |= {value.strip("_")} if isinstance(value, str) else set()
    return found


def test_no_retired_word_names_a_function_or_a_variable_of_the_pipeline() -> None:
    section = GLOSSARY.partition("## Pipeline")[2].partition("\n## ")[0]
    words = {word.strip().replace(" ", "_") for word in re.findall(r"([a-z ]+)†", section)}
    assert {"harvest", "told_apart_by"} <= words
    words -= {"form", "spans", "waiting"}  # of manifests, of one bucket, and for a lock
    rooms = (ROOT / "src" / "kafka_quotas" / room for room in ("pipeline", "commands/pipeline"))
    found = {path.name: words & identifiers(path.read_text("utf-8")) for room in rooms for path in room.rglob("*.py")}
    assert {name: used for name, used in found.items() if used} == {}


def test_no_retired_word_names_anything_of_the_wire_format() -> None:
    words = {"told", "tell", "said", "behind", "spelling", "treatment", "walk", "drop_topics", "grow_topics"}
    room = ROOT / "src" / "kafka_quotas" / "wire"
    found = {path.name: words & identifiers(path.read_text("utf-8")) for path in room.rglob("*.py")}
    assert {name: used for name, used in found.items() if used} == {}


def test_no_retired_word_names_anything_of_the_daemon() -> None:
    words = {"told", "tell", "tells", "said", "say", "terms", "book", "ledger", "gate", "desk", "relay", "notice"}
    words |= {"treatment", "place", "places", "front", "fronts", "way", "arrival", "entrance", "exchange", "remember"}
    room = ROOT / "src" / "kafka_quotas" / "enforcement"
    found = {path.name: words & identifiers(path.read_text("utf-8")) for path in room.rglob("*.py")}
    assert {name: used for name, used in found.items() if used} == {}


def test_no_retired_word_names_anything_of_the_stores_and_their_commands() -> None:
    words = {
        "told",
        "tell",
        "tells",
        "said",
        "behind",
        "facts",
        "stand",
        "standing",
        "standings",
        "opposite",
        "verbatim",
    }
    words |= {"left_alone", "audience", "actor", "treatment", "gate", "way"}
    rooms = (
        "stores",
        "commands/quotas",
        "commands/declarative",
        "commands/insight",
        "core/changes",
        "core/quota_files",
    )
    paths = [path for room in rooms for path in (ROOT / "src" / "kafka_quotas" / room).rglob("*.py")]
    found = {path.name: words & identifiers(path.read_text("utf-8")) for path in paths}
    assert {name: used for name, used in found.items() if used} == {}


def test_docstrings_do_not_begin_with_nothing() -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    beginning = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds) and (ast.get_docstring(node) or "").startswith(("Nothing", "Never;"))
    ]
    assert beginning == []


LOAD_TESTER = ("loadtest", "commands/load_test", "commands/testbed")
RETIRED_IN_LOAD_TESTER = {
    *("told", "tell", "said", "venue", "stage", "ground", "filler", "conclusion", "obstacle", "obstacles", "undoing"),
    *("keeping", "given", "audience", "actor"),
}


def words_of_names(path: Path) -> set[str]:
    """The words in the names of all functions, parameters, variables and attributes that a module sets."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                found |= set(name.split("_"))
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found |= set(name.lower().split("_"))
    return found


def test_retired_words_name_nothing_in_the_load_tester() -> None:
    package = ROOT / "src" / "kafka_quotas"
    modules = [path for path in SOURCES if path.relative_to(package).as_posix().startswith(LOAD_TESTER)]
    found = {str(path.relative_to(package)): words_of_names(path) & RETIRED_IN_LOAD_TESTER for path in modules}
    assert modules
    assert {path: words for path, words in found.items() if words} == {}
