"""A virtual environment with the program and what it always needs, and nothing of its extras.

The distributions are links into the environment that runs the tests, so it costs no download.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


_RUN_EACH = """
import contextlib, io, json, sys
from kafka_quotas.cli.main import main
outcomes = []
for argv in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    outcomes.append((code, out.getvalue(), err.getvalue()))
json.dump(outcomes, sys.stdout)
"""


class Outcome(NamedTuple):
    """What a command line ended with."""

    code: int
    out: str
    err: str


class BareEnvironment:
    """The environment in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        for each in _closure(PROJECT["dependencies"], {}).values():
            _link(each, packages)
        (packages / "kafka_quotas").symlink_to(ROOT / "src" / "kafka_quotas")
        metadata = f"Metadata-Version: 2.4\nName: kafka-quotas\nVersion: {PROJECT['version']}\n"
        lines = [
            f'Requires-Dist: {each}; extra == "{extra}"\n'
            for extra, names in PROJECT["optional-dependencies"].items()
            for each in names
        ]
        info = packages / f"kafka_quotas-{PROJECT['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata + "".join(lines), encoding="utf-8")

    def run_each(self, commands: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run command lines one after the other in one process without any setting of the caller's."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        done = subprocess.run(
            [str(self.folder / "bin" / "python"), "-P", "-c", _RUN_EACH],
            input=json.dumps([list(each) for each in commands]),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            cwd=self.folder,
            env={**kept, "HOME": str(self.folder), "COLUMNS": "80", "NO_COLOR": "1"},
        )
        assert done.returncode == 0, done.stderr
        return [Outcome(*each) for each in json.loads(done.stdout)]


def _closure(requirements: Iterable[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return what the requirements need outside of extras, by name."""
    for required in map(Requirement, requirements):
        if required.name not in found and (required.marker is None or required.marker.evaluate({"extra": ""})):
            found[required.name] = distribution(required.name)
            _closure(found[required.name].requires or (), found)
    return found


def _link(each: Distribution, packages: Path) -> None:
    for name in sorted(set(_top_level(each))):
        if not (packages / name).exists():
            (packages / name).symlink_to(str(each.locate_file(name)))


def _top_level(each: Distribution) -> Iterator[str]:
    for file in each.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            yield file.parts[0]
