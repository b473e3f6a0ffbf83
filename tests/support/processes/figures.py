"""What a process of this machine holds, as the kernel counts it."""

import re
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Return how much memory of a process is resident, without that of files, which others may share."""
    (size_kib,) = re.findall(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(size_kib) * 1024


def open_descriptors(pid: int) -> int:
    """Return how many file descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
