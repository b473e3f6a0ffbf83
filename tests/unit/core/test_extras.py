"""Optional libraries: what is missing is named as a person lists things, with a command that works here."""

import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kafka_quotas.core import extras
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.extras import install_extra, install_libraries, require_extra

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    ("modules", "names"),
    [
        (("nil_a",), "nil_a"),
        (("nil_a", "sys", "nil_b"), "nil_a and nil_b"),
        (("nil_a", "nil_b", "nil_c"), "nil_a, nil_b and nil_c"),
    ],
)
def test_what_is_missing_is_one_list_and_the_extra_is_the_hint(modules: tuple[str, ...], names: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_extra("spark", *modules, needed_by="the pipeline needs")
    assert refused.value.message == f"the pipeline needs {names}, not installed here"
    assert refused.value.hint == install_extra("spark")


@pytest.mark.parametrize("extra", ["plot", "spark", "raw", "pkcs12", "sasl"])
def test_an_extra_is_installed_by_the_libraries_that_it_names(extra: str) -> None:
    command = shlex.split(install_extra(extra))
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    named = {(each.name, each.specifier) for each in map(Requirement, command[4:])}
    assert named == {(each.name, each.specifier) for each in map(Requirement, PROJECT["optional-dependencies"][extra])}


def test_a_program_without_metadata_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_PROGRAM", "no-such-distribution")
    assert install_extra("plot", "matplotlib").endswith(" -m pip install matplotlib")


@pytest.mark.parametrize(
    ("marker", "has_pip", "command"),
    [
        ("pipx_metadata.json", False, "pipx inject {name} pyarrow"),
        ("uv-receipt.toml", True, "uv pip install --python {python} pyarrow"),
        ("pyvenv.cfg", False, "uv pip install --python {python} pyarrow"),
        ("pyvenv.cfg", True, "{python} -m pip install pyarrow"),
    ],
    ids=["pipx", "uv tool", "uv venv", "pip"],
)
def test_the_command_is_one_for_how_the_program_was_installed(
    marker: str, has_pip: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "my tools" / "kafka-quotas"
    prefix.mkdir(parents=True)
    (prefix / marker).touch()
    python = str(prefix / "bin" / "python")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(extras, "find_spec", lambda _: object() if has_pip else None)
    assert install_libraries("pyarrow") == command.format(name="kafka-quotas", python=shlex.quote(python))
