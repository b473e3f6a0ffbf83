"""The memory of a process that runs tasks: what one slice frees is there for the next one.

Slices need arrays of some MB for a fraction of a second each. By default the C library takes these from the system and
gives them back, and the system clears every page anew: a third of the processor time of `usage`.

Source: mallopt(3) of glibc. C libraries without it go on as before.
"""

import ctypes
from functools import lru_cache
from typing import Final

import pyarrow as pa

_KEPT_BYTES: Final = 1 << 30
_OPTIONS: Final = (
    (-1, _KEPT_BYTES),  # M_TRIM_THRESHOLD: more free memory than this goes back to the system
    (-3, _KEPT_BYTES),  # M_MMAP_THRESHOLD: larger arrays come from the system, one by one
    (-8, 1),  # M_ARENA_MAX: heaps that threads have of their own are given back, whatever the thresholds
)


@lru_cache(maxsize=1)
def keep_memory() -> None:
    """Have NumPy and Arrow keep the memory that they free, from threads that begin later as well."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None and all(set_option(*each) for each in _OPTIONS):
        pa.set_memory_pool(pa.system_memory_pool())
