"""Tables on a terminal of 80 columns: folded as long as they can be read so, else row by row."""

import io
import re

import pytest

from kafka_quotas.cli.output.listing import Column, Table
from kafka_quotas.cli.output.rich_table import print_rich_table


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def lines(table: Table) -> list[str]:
    text = io.StringIO()
    print_rich_table(table, text)
    return [line.rstrip() for line in re.sub(r"\x1b\[\d*m", "", text.getvalue()).splitlines()]


def table(columns: int, *rows: tuple[str, ...], caption: str | None = None) -> Table:
    titled = [Column(title=f"heading{number}") for number in range(columns)]
    return Table(columns=titled, rows=rows, caption=caption)


def test_a_table_that_fits_has_two_spaces_between_columns() -> None:
    assert lines(table(2, ("a", "b")))[::2] == ["heading0  heading1", "a         b"]


def test_a_tight_one_has_one() -> None:
    assert lines(table(9, ("x",) * 9))[0] == " ".join(f"heading{number}" for number in range(9))


def test_names_are_folded_and_headings_are_not() -> None:
    found = lines(table(3, ("a" * 60, "b c " * 20, "d")))
    assert found[0].split() == ["heading0", "heading1", "heading2"]
    assert "".join(found[2:]).count("a") == 60
    assert max(map(len, found)) <= 80


def test_one_that_is_too_wide_for_its_headings_stands_row_by_row() -> None:
    rows = (("first", *("x" * 9,) * 9), ("second", "y" * 100, *("z",) * 8))
    found = lines(table(10, *rows, caption="who waits"))
    assert found[:3] == ["who waits", "heading0  first", "heading1  xxxxxxxxx"]
    assert found[11] == ""
    assert found[12:15] == ["heading0  second", f"heading1  {'y' * 70}", f"          {'y' * 30}"]
    assert max(map(len, found)) <= 80


def test_what_must_stay_whole_is_never_cut() -> None:
    whole = [Column(title="key", whole=True), Column(title="value", whole=True, figures=True)]
    found = lines(Table(columns=whole, rows=[("k" * 60, "1" * 60)]))
    assert found == ["key" + " " * 4 + "k" * 60, "value" + " " * 2 + "1" * 60]
