"""One figure of `bounds.py`, and how a process is measured from outside."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CPU_OF_PROCESS: Final = 2
"""What makes the clock of a process' CPU time out of its id, as `clock_getcpuclockid` of Linux does it."""
HEADING: Final = f"{'what':<72}{'measured':>14}{'at most':>12}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured, in a unit, and what it may be at most (None: it is told for comparison)."""

    what: str
    measured: float
    unit: str
    bound: float | None
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is within its bound."""
        return self.bound is None or self.measured <= self.bound

    @property
    def line(self) -> str:
        """The figure and its bound as a line of the table under `HEADING`, marked where it is beyond its bound."""
        measured = f"{'' if self.holds else '! '}{self.measured:.3g} {self.unit}"
        bound = "" if self.bound is None else f"{self.bound:g} {self.unit}"
        return f"{self.what:<72}{measured:>14}{bound:>12}  {self.note}"


def cpu_s(pid: int) -> float:
    """Seconds of CPU time of a process, all its threads, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | _CPU_OF_PROCESS)


def resident_mb(pid: int) -> float:
    """Megabytes (10^6) that a process has resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"process {pid} is gone")
