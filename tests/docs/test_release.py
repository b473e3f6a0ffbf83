"""The release workflow: all that it names is there, its rights are few, and its script refuses what is not ready."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
TEXT = (FOLDER / "release.yml").read_text(encoding="utf-8")
WORKFLOW = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPT = ROOT / ".ci" / "release-notes"
MADE = {"dist", "notes.md"}
"""What steps make and others name."""


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in JOBS.items():
        for step in job.get("steps", ()):
            yield name, step


def step_of(job: str, action: str) -> dict[str, Any]:
    (found,) = (step["with"] for name, step in steps() if name == job and step.get("uses", "").startswith(f"{action}@"))
    return dict(found)


def test_it_runs_for_tags_of_versions_alone_and_may_only_read() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML takes `on` for true
    assert WORKFLOW["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert more == {
        "pypi": {"id-token": "write"},
        "image": {"contents": "read", "packages": "write"},
        "github": {"contents": "write"},
    }


def test_nothing_is_published_before_everything_is_checked_and_built() -> None:
    for name, job in JOBS.items():
        assert set(job.get("needs", ())) <= set(JOBS)
        if "permissions" in job:
            before, reached = list(job["needs"]), set[str]()
            while before:
                reached.add(each := before.pop())
                before += JOBS[each].get("needs", ())
            assert {"check", "pure", "compiled"} <= reached, name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_actions_of_others_are_named_by_commit_with_their_version(path: Path) -> None:
    for line in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
        if line.startswith("./"):
            called = yaml.safe_load((ROOT / line).read_text(encoding="utf-8"))
            assert "workflow_call" in called[True]
        else:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d[\d.]*", line), line


def test_the_files_folders_and_scripts_that_steps_name_are_there() -> None:
    named = [
        value
        for _, step in steps()
        for key, value in step.get("with", {}).items()
        if key in ("context", "file", "package-dir", "output-dir", "packages-dir", "path")
    ]
    named += re.findall(r"(?<![\w/])\.ci/[\w-]+", TEXT)
    assert {"Dockerfile", ".ci/release-notes"} <= set(named)
    for name in named:
        place = ROOT / name
        assert name.partition("/")[0] in MADE or place.exists(), name
        assert not name.startswith(".ci/") or os.access(place, os.X_OK), name
    programs = {line.split()[0] for _, step in steps() for line in step.get("run", "").splitlines()}
    assert programs == {".ci/release-notes", "python", "gh", "echo", "digest=$(docker"}


def test_every_expression_names_a_step_an_output_or_a_setting_that_there_is() -> None:
    for name, step in steps():
        given = " ".join(map(str, step.get("with", {}).values()))
        for wanted, output in re.findall(r"steps\.(\w+)\.outputs\.(\w+)", given):
            (maker,) = (each for job, each in steps() if job == name and each.get("id") == wanted)
            assert f'echo "{output}=' in maker["run"]
    contexts = set(re.findall(r"\$\{\{ (\w+)\.", TEXT))
    assert contexts == {"matrix", "github", "steps"}


def test_pypi_trusts_the_workflow_without_a_password() -> None:
    assert JOBS["pypi"]["environment"]["name"] == "pypi"
    assert step_of("pypi", "pypa/gh-action-pypi-publish") == {"packages-dir": "dist"}
    assert "secrets." not in TEXT


def test_the_image_comes_with_provenance_and_a_list_of_its_parts() -> None:
    build = step_of("image", "docker/build-push-action")
    assert (build["provenance"], build["sbom"], build["push"]) == ("mode=max", True, True)
    argument = build["build-args"].partition("=")[0]
    assert f"ARG {argument}=" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_a_compiled_wheel_is_made_for_every_python_and_shown_to_be_compiled() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    pythons = [each.rpartition("3.")[2] for each in PROJECT["project"]["classifiers"] if ":: 3." in each]
    ((first, last),) = re.findall(r"cp31\[(\d)-(\d)\]-manylinux_\*", settings["build"])
    assert [f"1{minor}" for minor in range(int(first), int(last) + 1)] == pythons
    (switch,) = settings["environment"]
    assert switch == "HATCH_BUILD_HOOK_ENABLE_MYPYC"
    assert settings["test-command"].startswith("kafka-quotas --version | grep compiled && ")
    ours = (ROOT / "tests" / "integration" / "cli" / "test_compiled_wheel.py").read_text(encoding="utf-8")
    assert f'{switch}="1"' in ours


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the script reads, whose version can be released."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [0.2.0] - unreleased\n\n## [0.1.0] - 2026-12-01\n\n- The first.\n\n## [0.0.9] - 2025-01-01\n"
    )
    return tmp_path


def asked(project: Path, tag: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(project / ".ci" / "release-notes"), tag], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_the_notes_are_those_of_the_version(project: Path) -> None:
    assert asked(project, "v0.1.0") == (0, "- The first.\n", "")


@pytest.mark.parametrize(
    ("tag", "change", "says"),
    [
        ("v0.1.1", ("", ""), "error: the tag is v0.1.1, and pyproject.toml has version 0.1.0\n"),
        ("0.1.0", ("", ""), "error: the tag is 0.1.0, and pyproject.toml has version 0.1.0\n"),
        ("v0.1.0", ("2026-12-01", "unreleased"), "has no date: ## [0.1.0] - unreleased\n"),
        ("v0.1.0", ("[0.1.0]", "[0.1.2]"), "error: CHANGELOG.md has 0 sections of 0.1.0\n"),
    ],
)
def test_what_is_not_ready_is_refused(project: Path, tag: str, change: tuple[str, str], says: str) -> None:
    changelog = project / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(*change) if change[0] else changelog.read_text())
    code, out, err = asked(project, tag)
    assert (code, out) == (1, "")
    assert err.endswith(says)


def test_this_checkout_lacks_nothing_but_the_date() -> None:
    code, out, err = asked(ROOT, f"v{PROJECT['project']['version']}")
    assert (code == 0 and out != "") or "has no date" in err, err


def test_the_page_names_what_the_workflow_has() -> None:
    page = (ROOT / "docs" / "project" / "release.md").read_text(encoding="utf-8")
    assert "`release.yml`" in page
    assert f"environment `{JOBS['pypi']['environment']['name']}`" in " ".join(page.split())
    assert ".ci/release-notes" in page
