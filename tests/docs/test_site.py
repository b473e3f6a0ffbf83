"""The documentation builds as a site: strictly, with every link checked, and without a request to another host."""

import html
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?(https?:)?//")
"""What a browser fetches from another host while it shows a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def test_every_page_is_in_the_site_and_in_its_search(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.with_name("index.html") if path.stem == "README" else path for path in pages}
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert [path for path in built if not (site / path).is_file()] == []
    assert [path for path in built if f'"{path}' not in index and path.name != "index.html"] == []


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert [path.name for path in pages if LOADED.search(path.read_text(encoding="utf-8"))] == []


def test_files_that_pages_link_to_come_along(site: Path) -> None:
    assert (site / "files" / "examples" / "daemon" / "policy.toml").is_file()
    assert (site / "files" / "examples" / "grafana" / "index.html").is_file()


def test_no_folder_of_the_docs_has_more_than_20_entries() -> None:
    folders = [ROOT / "docs", *(each for each in (ROOT / "docs").rglob("*") if each.is_dir())]
    counts = {each.name: len(list(each.iterdir())) for each in folders}
    assert {name: count for name, count in counts.items() if count > 20} == {}


def test_code_with_bars_is_shown_without_backslashes(site: Path) -> None:
    shown = {path.name: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert [name for name, text in shown.items() if re.search(r"<code>[^<]*\\\\\|", text)] == []
    assert "--mode kafka|smooth|shadow" in html.unescape(shown["enforce.html"])


def test_the_front_page_has_the_picture_and_commands(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    assert '<img alt="A terminal: ' in front
    assert "kafka-quotas demo" in html.unescape(re.sub(r"<[^>]+>", "", front))


def test_the_copy_button_of_a_console_copies_its_commands_alone(site: Path) -> None:
    page = (site / "tutorial" / "first-quota.html").read_text(encoding="utf-8")
    assert "javascripts/console.js" in page
    assert '<span class="gp">$ </span>' in page, "the mark by which the script knows a console"
