"""Writer of `docker/requirements.txt` and `docker/build-requirements.txt`: what the image installs, with hashes.

    python -m generators.locked_requirements

pip resolves the base, the extra `daemon` and the build system for the Python of the image on both of its architectures.
Versions are today's; nothing is installed.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docker"
PYTHON: Final = "3.11"
ARCHITECTURES: Final = ("x86_64", "aarch64")
_HEADER: Final = "# Written by python -m generators.locked_requirements, for Python {} on Linux ({}).\n"


def wanted() -> dict[str, list[str]]:
    """Return the requirements of the project by the file that locks them."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    return {
        "requirements.txt": [*project["dependencies"], *project["optional-dependencies"]["daemon"]],
        "build-requirements.txt": document["build-system"]["requires"],
    }


def locked(requirements: Iterable[str]) -> str:
    """Return the content of a file: each distribution with the hash of its wheel for each architecture."""
    hashes: dict[str, dict[str, None]] = {}
    for architecture in ARCHITECTURES:
        for name, found in _resolved(list(requirements), architecture):
            hashes.setdefault(name, {})[found] = None
    lines = ["".join((name, *(f" \\\n    --hash={each}" for each in found))) for name, found in sorted(hashes.items())]
    return _HEADER.format(PYTHON, " and ".join(ARCHITECTURES)) + "\n".join(lines) + "\n"


def _resolved(requirements: list[str], architecture: str) -> list[tuple[str, str]]:
    platforms = [f"--platform=manylinux{version}_{architecture}" for version in ("_2_28", "_2_17", "2014")]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report=-"),
            *("--only-binary=:all:", f"--python-version={PYTHON}", f"--target={folder}", *platforms, *requirements),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    found = []
    for each in json.loads(done.stdout)["install"]:
        sha256 = each["download_info"]["archive_info"]["hashes"]["sha256"]
        found.append((f"{each['metadata']['name'].lower()}=={each['metadata']['version']}", f"sha256:{sha256}"))
    return found


if __name__ == "__main__":
    for file, requirements in wanted().items():
        (FOLDER / file).write_text(locked(requirements), encoding="utf-8")
