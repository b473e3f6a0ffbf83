"""Every page with `console` blocks shows what its commands print."""

import re
from pathlib import Path

import pytest
from generators.console import PAGES, ROOT, rewritten, rewritten_page


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_what_its_commands_print(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert rewritten_page(page, tmp_path) == text, "`python -m generators.console` writes the outputs anew"


def test_every_page_with_console_blocks_is_listed() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {str(each.relative_to(ROOT)) for each in pages if "```console" in each.read_text(encoding="utf-8")}
    assert shown == set(PAGES)


def test_a_command_that_fails_is_found(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ends with 2: error: unknown"):
        rewritten("```console\n$ kafka-quotas alter --user a --add-config nothing=1\n```\n", tmp_path)


def test_other_programs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape("not a command of kafka-quotas: rm -rf x")):
        rewritten("```console\n$ rm -rf x\n```\n", tmp_path)


def test_outputs_that_differ_are_replaced(tmp_path: Path) -> None:
    page = "```console\n$ kafka-quotas alter --user a --add-config producer_byte_rate=5MB > said\nold\n```\n"
    assert rewritten(page, tmp_path).splitlines()[1:-1] == [page.splitlines()[1]]
    assert (tmp_path / "said").read_text(encoding="utf-8").endswith("producer_byte_rate not set -> 5 MB/s\n")
