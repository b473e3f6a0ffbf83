"""The memory that NumPy and Arrow free, which processes that run tasks keep."""

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow as pa

from kafka_quotas.pipeline.tables.packed_events import keep_memory


def held_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def take_and_free():
    arrays = [np.ones(1 << 20) for _ in range(16)]
    arrays += [np.frombuffer(pa.allocate_buffer(1 << 23), np.uint8) for _ in range(16)]
    for each in arrays:
        np.square(each)


keep_memory()
before = held_bytes()
thread = Thread(target=take_and_free)
thread.start()
thread.join()
print(held_bytes() - before, pa.default_memory_pool().backend_name)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_what_a_thread_frees_stays_with_the_process() -> None:
    found = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    kept, pool = found.stdout.split()
    assert pool == "system"
    assert int(kept) > 1 << 27
