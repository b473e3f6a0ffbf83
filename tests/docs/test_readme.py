"""The README is short, its badges are true, its picture needs nothing from elsewhere, and its links lead somewhere."""

import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150


def test_the_badges_say_what_the_package_says() -> None:
    versions = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert f"python-{versions[0]}_to_{versions[-1]}-" in README
    assert f"licence-{PROJECT['license'].replace('-', '--')}-" in README
    assert "Development Status :: 4 - Beta" in PROJECT["classifiers"]
    assert "status-beta-" in README


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_what_it_links_to_is_there(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_moving_picture_moves_and_loads_nothing() -> None:
    text = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    drawn = "".join(ET.fromstring(text).itertext())
    assert "Every quota held." in drawn
    assert text.count("@keyframes") > 10
    assert "prefers-reduced-motion" in text
    assert re.findall(r"https?://(?!www\.w3\.org)|<script|@import|url\(", text) == []


@pytest.mark.parametrize("target", ["demo", "quick", "test", "site", "docs", "check"])
def test_make_has_the_targets_that_the_pages_name(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
