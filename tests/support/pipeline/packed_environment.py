"""A packed Python environment, as `--env-archive` takes it: NumPy, Arrow and orjson alone, without numba."""

import subprocess
import sys
import tarfile
from pathlib import Path

import deltalake
import numpy as np
import orjson
import pyarrow as pa

_LEFT_OUT = frozenset({"__pycache__", "tests", "include", "src"})


def packed_environment(folder: Path) -> Path:
    """The archive: a virtual environment of this Python, packed as venv-pack packs it."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", str(environment)], check=True)
    archive = folder / "environment.tar.gz"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    known = {"numpy": np, "pyarrow": pa, "deltalake": deltalake, "orjson": orjson}
    places = {name: module.__file__ or "" for name, module in known.items()}
    found = {each for name, place in places.items() for each in Path(place).parents[1].glob(f"{name}*")}
    with tarfile.open(archive, "w:gz", compresslevel=0) as file:
        for part in sorted(environment.iterdir()):  # an entry for the folder itself, "./", Spark refuses
            file.add(part, part.name)
        for package in sorted(found):
            file.add(package, f"lib/{version}/site-packages/{package.name}", filter=_needed)
    return archive


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name in _LEFT_OUT else member
