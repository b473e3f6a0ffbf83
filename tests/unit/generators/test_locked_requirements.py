"""The files that lock what the image installs: every requirement, in a version that the project takes, with hashes."""

import re

import pytest
from generators.locked_requirements import FOLDER, wanted
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@pytest.mark.parametrize("file", wanted())
def test_a_file_locks_every_requirement_of_the_project(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    locked = {canonicalize_name(name): version for name, version in re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE)}
    for required in map(Requirement, wanted()[file]):
        assert required.specifier.contains(locked[canonicalize_name(required.name)]), required


@pytest.mark.parametrize("file", wanted())
def test_each_version_has_its_hashes(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8").replace(" \\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"\S+==\S+(?: +--hash=sha256:[0-9a-f]{64})+", line), line
