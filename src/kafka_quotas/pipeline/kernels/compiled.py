"""Compilation of kernels by Numba.

Invariants: division by zero gives IEEE infinities as in Java. There is no fast-math, which keeps sums in the order
written.
"""

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from zipfile import ZipFile
from zipimport import zipimporter

import numba

Kernel = Callable[..., Any]
"""A function over scalars and arrays, typed by the compiler at its first call."""


def compiled(kernel: Kernel) -> Kernel:
    """Compile a kernel to machine code at its first call and cache it on disk."""
    with suppress(OSError):  # no place for a copy: compiled by each process
        _name_stably(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba warns, or raises, where it finds no place for its cache
        try:
            machine_code: Kernel = numba.njit(cache=True, nogil=True, error_model="numpy")(kernel)
        except RuntimeError:  # the package was imported from an archive, as Spark ships it
            machine_code = numba.njit(nogil=True, error_model="numpy")(kernel)
    return machine_code


def _name_stably(kernel: Kernel) -> None:
    """Name a file that stays as the source of a kernel that comes from an archive.

    Numba caches machine code by name and content of the source. Spark ships the package as an archive that has another
    name in each session, so that each worker process would compile every kernel anew. Where the same package is
    installed as well, its file is named. Else it is a copy, in a folder named after the whole archive: machine code has
    that of other modules' kernels in it.
    """
    module = kernel.__globals__["__spec__"]
    if not isinstance(module.loader, zipimporter):
        return
    folder = _installed(module.loader.archive)
    if folder is not None:
        file = folder / f"{kernel.__module__.replace('.', '/')}.py"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        file = cache / "kafka-quotas" / _digest(module.loader.archive) / f"{kernel.__module__}.py"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as copy:
            copy.write(module.loader.get_source(kernel.__module__) or "")
        Path(copy.name).replace(file)  # other workers may be at it as well
    kernel.__code__ = kernel.__code__.replace(co_filename=str(file))


@lru_cache(maxsize=8)
def _installed(archive: str) -> Path | None:
    """Return the folder on Python's path that has every file of an archive, None if there is none."""
    with ZipFile(archive) as packed:
        names = packed.namelist()
        for folder in map(Path, sys.path):
            if all(_content(folder / name) == packed.read(name) for name in names):
                return folder
    return None


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


@lru_cache(maxsize=8)
def _digest(archive: str) -> str:
    return sha256(Path(archive).read_bytes()).hexdigest()[:16]
