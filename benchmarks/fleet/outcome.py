"""What came out of one simulated run: its bytes by time and by client, and the figures that sum them up."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

LIMIT: Final = 10_000_000.0
"""The quota of each name, bytes per second."""


@dataclass(slots=True)
class Outcome:
    """The bytes of one run."""

    by_tenth: dict[int, float] = field(default_factory=dict)
    by_client: dict[int, float] = field(default_factory=dict)
    published: float = 0.0
    seconds: int = 1

    def add(self, client: int, size: int, at_ms: int, counted_from_ms: int) -> None:
        self.by_tenth[at_ms // 100] = self.by_tenth.get(at_ms // 100, 0.0) + size
        if at_ms >= counted_from_ms:
            self.by_client[client] = self.by_client.get(client, 0.0) + size

    def total(self) -> float:
        return sum(self.by_tenth.values())

    def windows(self, tenths: int) -> Iterator[float]:
        running: deque[float] = deque(maxlen=tenths)
        current = 0.0
        for tenth in range(self.seconds * 10):
            if len(running) == tenths:
                current -= running[0]
            running.append(self.by_tenth.get(tenth, 0.0))
            current += running[-1]
            yield current

    def jain(self, clients: int) -> float:
        amounts = list(self.by_client.values()) + [0.0] * (clients - len(self.by_client))
        squares = sum(each * each for each in amounts)
        return sum(amounts) ** 2 / (len(amounts) * squares) if squares else 1.0

    def settled_s(self, changed_s: int) -> float:
        """Return from when on the sums of each window are within 5 % of the limit, in seconds after the change."""
        sums = list(self.windows(110))
        last = changed_s * 10
        for at in range(changed_s * 10 + 110, len(sums)):
            if abs(sums[at] - 11 * LIMIT) > 0.05 * 11 * LIMIT:
                last = at - 109
        return last / 10 - changed_s
