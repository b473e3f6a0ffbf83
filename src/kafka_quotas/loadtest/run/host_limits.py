"""What this machine lets one process have: open files and mapped regions, which a broker spends on every partition."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILES_PER_PARTITION: Final = 2
"""Files a broker holds open for each partition: the log (1 was measured with 4.3.1), and one while it is rolled."""
MAPS_PER_PARTITION: Final = 2
"""Regions it maps for each partition: its two indices (2 were measured)."""
FILES_OF_A_BROKER: Final = 500
"""What it holds open before there is a partition (170 were measured), with room for connections."""
MAPS_OF_A_BROKER: Final = 1500
"""Regions it maps before there is a partition (some 450 were measured)."""
FILES_PER_CLIENT: Final = 4
"""Sockets and pipes of one client in this process."""
FILES_OF_THIS: Final = 200
_MAX_MAPS: Final = Path("/proc/sys/vm/max_map_count")
_UNKNOWN: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The most files one process may have open here, and the most regions it may map."""

    open_files: int
    max_maps: int

    @property
    def partitions(self) -> int:
        """How many partitions one broker can have on this machine."""
        by_files = (self.open_files - FILES_OF_A_BROKER) // FILES_PER_PARTITION
        by_maps = (self.max_maps - MAPS_OF_A_BROKER) // MAPS_PER_PARTITION
        return max(0, min(by_files, by_maps))

    @property
    def clients(self) -> int:
        """How many connections of clients this process can have."""
        return max(0, (self.open_files - FILES_OF_THIS) // FILES_PER_CLIENT)

    @property
    def told(self) -> str:
        """The two limits, in words."""
        maps = "any number of" if self.max_maps == _UNKNOWN else str(self.max_maps)
        return f"{self.open_files} open files (ulimit -n) and {maps} mapped regions (vm.max_map_count)"


def host_limits() -> HostLimits:
    """The limits of this machine, as far as they can be raised without being root."""
    import resource  # noqa: PLC0415 - not on every system; only a validation asks

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        maps = int(_MAX_MAPS.read_text("ascii"))
    except (OSError, ValueError):
        maps = _UNKNOWN  # systems without /proc have no such limit
    return HostLimits(open_files=_UNKNOWN if hard == resource.RLIM_INFINITY else hard, max_maps=maps)


def raise_open_files() -> None:
    """Nothing; this process may have as many files open as it could be allowed to: clients are sockets."""
    import resource  # noqa: PLC0415 - as above

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
