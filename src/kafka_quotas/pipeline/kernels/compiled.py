"""Compilation of kernels by Numba where that is installed, and the name of what runs them.

Invariants: results do not depend on it. Division by zero gives IEEE infinities as in Java; no fast-math, so that sums
are added in the order written.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

Kernel = Callable[..., Any]
"""A function over scalars and arrays, typed by the compiler when it is called."""

numba: Any = None
with suppress(ImportError):
    import numba

NUMBA: Final[bool] = numba is not None
BACKEND: Final = "numba" if NUMBA else "numpy"
"""What runs the kernels in this process: `numba`, or `numpy` where Numba is not installed."""


def compiled(kernel: Kernel) -> Kernel:
    """The kernel as machine code, compiled at its first call and kept on disk; the kernel itself without Numba."""
    if not NUMBA:
        return kernel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba warns, or raises, where it finds no place for its cache
        try:
            machine_code: Kernel = numba.njit(cache=True, nogil=True, error_model="numpy")(kernel)
        except RuntimeError:  # the package was imported from an archive, as Spark ships it
            machine_code = numba.njit(nogil=True, error_model="numpy")(kernel)
    return machine_code
