"""Compilation of kernels by Numba.

Invariants: division by zero gives IEEE infinities as in Java. There is no fast-math, which keeps sums in the order
written.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
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
    """Name a copy of its module as the source of a kernel that comes from an archive.

    Numba caches machine code by name and content of the source. Spark ships the package as an archive that has another
    name in each session, so that each worker process would compile every kernel anew. The copy lies in a folder named
    after the whole archive: machine code has that of other modules' kernels in it.
    """
    loader = getattr(kernel.__globals__["__spec__"], "loader", None)
    if not isinstance(loader, zipimporter):
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    copy = cache / "kafka-quotas" / _digest(loader.archive) / f"{kernel.__module__}.py"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=copy.parent, encoding="utf-8", delete=False) as file:
            file.write(loader.get_source(kernel.__module__) or "")
        Path(file.name).replace(copy)  # other workers may be at it as well
    kernel.__code__ = kernel.__code__.replace(co_filename=str(copy))


@lru_cache(maxsize=8)
def _digest(archive: str) -> str:
    return sha256(Path(archive).read_bytes()).hexdigest()[:16]
