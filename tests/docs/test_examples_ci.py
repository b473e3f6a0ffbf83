"""The workflow for pull requests and the hook for pre-commit: their steps run in bash, with the installed command."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

CI = Path(__file__).parents[2] / "examples" / "ci"
WORKFLOW: dict[str, Any] = yaml.safe_load((CI / "quotas.yaml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = [step for step in WORKFLOW["jobs"]["diff"]["steps"] if "run" in step]
EVENT = {
    "github.base_ref": "main",
    "github.token": "a-token",
    "github.event.pull_request.number": "7",
}
COMMIT = "git -c user.name=a -c user.email=a@b commit -qm"
BASE = """\
- {entity: {user: web}, quotas: {producer_byte_rate: 10MiB}}
- {entity: {user: old}, quotas: {consumer_byte_rate: 1M}}
"""
CHANGED = "- {entity: {user: web}, quotas: {producer_byte_rate: 5MiB}}\n"


class Checkout:
    """A clone with a branch of its own, and the environment of a runner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.posted = folder / "posted"
        self.summary = folder / "summary.md"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        # GitHub can't be had here: its command line keeps what it is given.
        gh = bin_folder / "gh"
        gh.write_text(f'#!/bin/bash\n{{ echo "$*"; echo "$GH_TOKEN"; cat "${{!#}}"; }} > {self.posted}\n')
        gh.chmod(0o755)
        path = f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {
            "PATH": path,
            "HOME": str(folder),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        origin = folder / "origin"
        self.bash(
            f"git init -q -b main {origin}; mkdir {origin}/quotas; cd {origin}; cat > quotas/q.yaml; git add .\n"
            f"{COMMIT} base; git clone -q {origin} {self.folder}",
            folder,
            text=BASE,
        )

    def bash(self, script: str, folder: Path, *, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env=self.environment | more,
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def step(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        given = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda match: EVENT[match[1]], value)
            for name, value in step.get("env", {}).items()
        }
        return self.bash(step["run"], self.folder, **given)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_steps_of_the_workflow_comment_what_changes(checkout: Checkout) -> None:
    (checkout.folder / "quotas" / "q.yaml").write_text(CHANGED)
    install, *steps = STEPS
    assert install["run"] == "pip install kafka-quotas"  # the command under test is here already
    for step in steps:
        done = checkout.step(step)
        assert done.returncode == 0, f"{step['name']}: {done.stderr}"
    arguments, token, *comment = checkout.posted.read_text().splitlines()
    assert arguments == "pr comment 7 --edit-last --create-if-none --body-file comment.md"
    assert token == "a-token"
    assert comment[0] == "### Kafka quotas: 0 to add, 1 to change, 1 to remove"
    assert comment == checkout.summary.read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in comment if line.startswith("| ")]
    assert ["change", "`user web`", "`producer_byte_rate`", "10 MiB/s", "5 MiB/s"] in rows
    assert ["remove", "`user old`", "`consumer_byte_rate`", "1 MB/s", "not set"] in rows


def test_a_broken_file_fails_the_check(checkout: Checkout) -> None:
    (checkout.folder / "quotas" / "q.yaml").write_text("- {entity: {user: web}, quotas: {producer_rate: 1}}\n")
    done = checkout.step(STEPS[1])
    assert done.returncode == 1
    assert "quotas/q.yaml:1" in done.stdout


def test_files_that_are_new_are_compared_with_nothing(checkout: Checkout) -> None:
    checkout.bash(f"git rm -qr quotas; {COMMIT} gone", checkout.folder.parent / "origin")
    checkout.bash("git fetch -q", checkout.folder)
    for step in STEPS[1:]:
        assert checkout.step(step).returncode == 0
    assert "### Kafka quotas: 2 to add, 0 to change, 0 to remove" in checkout.posted.read_text()


@pytest.mark.parametrize(("text", "code"), [(BASE, 0), ("- {entity: {user: web}}\n", 1)])
def test_the_hook_of_pre_commit_checks_the_folder(tmp_path: Path, text: str, code: int) -> None:
    (repository,) = yaml.safe_load((CI / "pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (hook,) = repository["hooks"]
    (tmp_path / "quotas").mkdir()
    (tmp_path / "quotas" / "q.yaml").write_text(text)
    assert re.search(hook["files"], "quotas/q.yaml")
    program, *arguments = hook["entry"].split()
    done = subprocess.run([Path(sys.executable).parent / program, *arguments], cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == code
