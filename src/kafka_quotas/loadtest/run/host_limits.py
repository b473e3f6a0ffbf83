"""The limits of a process on this machine: open files and memory maps, needed for every partition."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILES_PER_PARTITION: Final = 2
"""Open files of a broker per partition: the log (measured: 1, Kafka 4.3.1), and one more during a roll."""
MAPS_PER_PARTITION: Final = 2
"""Memory maps of a broker per partition: its two indices (measured: 2)."""
FILES_OF_A_BROKER: Final = 500
"""Open files of a broker without partitions (measured: 170), with room for connections."""
MAPS_OF_A_BROKER: Final = 1500
"""Memory maps of a broker without partitions (measured: some 450)."""
FILES_PER_CLIENT: Final = 4
"""Sockets and pipes of one client in this process."""
FILES_OF_THIS: Final = 200
_MAX_MAPS: Final = Path("/proc/sys/vm/max_map_count")
_UNKNOWN: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The limits of one process on this machine."""

    open_files: int
    """Most files that a process may have open."""
    max_maps: int
    """Most memory maps that a process may have."""

    @property
    def partitions(self) -> int:
        """The most partitions that one broker can have on this machine."""
        by_files = (self.open_files - FILES_OF_A_BROKER) // FILES_PER_PARTITION
        by_maps = (self.max_maps - MAPS_OF_A_BROKER) // MAPS_PER_PARTITION
        return max(0, min(by_files, by_maps))

    @property
    def clients(self) -> int:
        """The most client connections that this process can have."""
        return max(0, (self.open_files - FILES_OF_THIS) // FILES_PER_CLIENT)

    @property
    def description(self) -> str:
        """The two limits as text for a message."""
        maps = "any number of" if self.max_maps == _UNKNOWN else str(self.max_maps)
        return f"{self.open_files} open files (ulimit -n) and {maps} mapped regions (vm.max_map_count)"


def host_limits() -> HostLimits:
    """Return the limits of this machine, as far as a process without root can raise them."""
    import resource  # noqa: PLC0415 - not on every system; only a validation asks

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        maps = int(_MAX_MAPS.read_text("ascii"))
    except (OSError, ValueError):
        maps = _UNKNOWN  # systems without /proc have no such limit
    return HostLimits(open_files=_UNKNOWN if hard == resource.RLIM_INFINITY else hard, max_maps=maps)


def raise_open_files() -> None:
    """Raise this process's limit of open files to its hard limit, because every client needs sockets."""
    import resource  # noqa: PLC0415 - as above

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
