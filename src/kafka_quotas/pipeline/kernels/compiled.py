"""Compilation of kernels by Numba where it is installed, and the name of the backend.

Invariants: results do not depend on the backend. Division by zero gives IEEE infinities as in Java. There is no
fast-math, which keeps sums in the order written.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

Kernel = Callable[..., Any]
"""A function over scalars and arrays, typed by the compiler at its first call."""

numba: Any = None
with suppress(ImportError):
    import numba

NUMBA: Final[bool] = numba is not None
BACKEND: Final = "numba" if NUMBA else "numpy"
"""The backend of the kernels in this process: `numba`, or `numpy` where Numba is not installed."""


def compiled(kernel: Kernel) -> Kernel:
    """Compile a kernel to machine code at its first call and cache it on disk.

    Without Numba the kernel itself is returned.
    """
    if not NUMBA:
        return kernel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba warns, or raises, where it finds no place for its cache
        try:
            machine_code: Kernel = numba.njit(cache=True, nogil=True, error_model="numpy")(kernel)
        except RuntimeError:  # the package was imported from an archive, as Spark ships it
            machine_code = numba.njit(nogil=True, error_model="numpy")(kernel)
    return machine_code
