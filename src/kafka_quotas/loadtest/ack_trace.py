"""Acknowledged bytes over time, in bounded memory.

Invariant: the sum of all entries is exactly what was added; only their times are coarsened, to a grid that doubles
whenever the trace would outgrow its limit.
"""

MAX_ENTRIES = 120_000
"""At 1 ms that is two minutes of uninterrupted acknowledgements; a day of them ends at about 1 s."""


class AckTrace:
    """Pairs (t_ms, bytes) in order of time, at most one per `resolution_ms`."""

    def __init__(self, *, max_entries: int = MAX_ENTRIES) -> None:
        self.resolution_ms = 1
        self._max_entries = max_entries
        self._entries: list[tuple[int, int]] = []

    def add(self, t_ms: int, size: int) -> None:
        """Nothing; `size` bytes were acknowledged at `t_ms`, which is not before the last call's."""
        slot = t_ms - t_ms % self.resolution_ms
        entries = self._entries
        if entries and entries[-1][0] == slot:
            entries[-1] = (slot, entries[-1][1] + size)
            return
        entries.append((slot, size))
        while len(self._entries) > self._max_entries:
            self._coarsen()

    def entries(self) -> tuple[tuple[int, int], ...]:
        """The pairs so far; (milliseconds of the grid, bytes)."""
        return tuple(self._entries)

    def recent_bytes(self, since_ms: int) -> int:
        """The bytes acknowledged at or after `since_ms`."""
        total = 0
        for t_ms, size in reversed(self._entries):
            if t_ms < since_ms:
                break
            total += size
        return total

    def _coarsen(self) -> None:
        self.resolution_ms *= 2
        merged: dict[int, int] = {}
        for t_ms, size in self._entries:
            slot = t_ms - t_ms % self.resolution_ms
            merged[slot] = merged.get(slot, 0) + size
        self._entries = list(merged.items())
