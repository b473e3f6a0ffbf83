"""The counter behind the budgets: what it counts, and what it says of a figure beyond its budget."""

from pathlib import Path

from generators.budget import option_figures, over_budget, page_figures, source_figures

MODULE = '''"""A module."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A place."""

    x: int
'''


def test_lines_statements_and_records_are_counted(tmp_path: Path) -> None:
    room = tmp_path / "src" / "kafka_quotas" / "core"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text('"""A room."""\n', encoding="utf-8")
    (room / "point.py").write_text(MODULE, encoding="utf-8")
    (room / "long.py").write_text("x = 1\n" * 501, encoding="utf-8")
    assert source_figures(tmp_path) == {
        "lines": 512,
        "statements": 504,
        "modules": 2,
        "median_module": 255.5,
        "modules_under_60": 1,
        "modules_over_500": 1,
        "records": 1,
        "core": 511,
    }


def test_what_is_beyond_its_budget_is_named() -> None:
    figures = {"lines": 11, "median_module": 99, "modules": 3, "new": 1}
    assert sorted(over_budget(figures, {"lines": 10, "median_module": 100, "modules": 3, "gone": 1})) == [
        "gone: a budget of nothing that is counted",
        "lines: 11, and the budget is 10",
        "median_module: 99, and the budget is at least 100",
        "new: no budget",
    ]


def test_the_options_of_all_commands_are_counted() -> None:
    figures = option_figures()
    assert figures["distinct_options"] < figures["options"]
    assert figures["most_options_of_a_command"] < figures["distinct_options"]


def test_pages_from_help_texts_and_measurements_are_not_counted(tmp_path: Path) -> None:
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/how-to/a.md",
        "docs/reference/commands/b.md",
        "docs/scenarios/c.md",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("two words\n", encoding="utf-8")
    assert page_figures(tmp_path) == {"words_of_docs": 6}
