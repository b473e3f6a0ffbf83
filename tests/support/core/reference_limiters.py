"""The rules of Kafka's metrics as plainly as they can be put, to hold the fast forms against.

Every observation walks over all slots, nothing is kept ready, and nothing is shared with the code under test.
"""

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass
class Slot:
    start_ms: int
    last_ms: int
    value: float = 0.0


class ReferenceRate:
    """A rate of a windowed sum."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.samples, self.window = samples, window_ms
        self.slots: list[Slot] = []
        self.index = 0

    def current(self, now_ms: int) -> Slot:
        if not self.slots:
            self.slots.append(Slot(now_ms, now_ms))
        return self.slots[self.index]

    def record(self, value: float, now_ms: int) -> None:
        slot = self.current(now_ms)
        if now_ms - slot.start_ms >= self.window:
            self.index = (self.index + 1) % (self.samples + 1)
            slot = Slot(now_ms, now_ms)
            if self.index >= len(self.slots):
                self.slots.append(slot)
            else:
                self.slots[self.index] = slot
        slot.value += value
        slot.last_ms = now_ms

    def purge(self, now_ms: int) -> None:
        for position, slot in enumerate(self.slots):
            if now_ms - slot.last_ms >= self.samples * self.window:
                self.slots[position] = Slot(now_ms, now_ms)

    def total(self, now_ms: int) -> float:
        self.purge(now_ms)
        total = 0.0
        for slot in self.slots:
            total += slot.value
        return total

    def window_ms(self, now_ms: int) -> int:
        self.purge(now_ms)
        self.current(now_ms)
        elapsed = now_ms - min(slot.start_ms for slot in self.slots)
        whole = int32(math.trunc(Fraction(elapsed, self.window)))
        if whole < self.samples - 1:
            elapsed += int32(self.samples - 1 - whole) * self.window
        return max(elapsed, 1)

    def measure(self, now_ms: int) -> float:
        total = self.total(now_ms)
        return total / (self.window_ms(now_ms) / 1000.0)

    def record_and_throttle_ms(self, value: float, now_ms: int, bound: float, longest_ms: int) -> int:
        self.record(value, now_ms)
        rate = self.measure(now_ms)
        if rate <= bound:
            return 0
        excess = rate - bound
        relative = math.copysign(math.inf, excess) if bound == 0 else excess / bound
        return int32(min(java_round(relative * self.window_ms(now_ms)), longest_ms))


class ReferenceTokens:
    """A token bucket."""

    def __init__(self, samples: int, window_ms: int, bound: float) -> None:
        self.samples, self.window, self.bound = samples, window_ms, bound
        self.tokens, self.last_ms = 0.0, 0

    def measure(self, now_ms: int) -> float:
        burst = self.samples * (self.window / 1000.0) * self.bound
        self.tokens = min(burst, self.tokens + self.bound * ((now_ms - self.last_ms) / 1000.0))
        self.last_ms = now_ms
        return self.tokens

    def record(self, value: float, now_ms: int) -> None:
        burst = self.samples * (self.window / 1000.0) * self.bound
        self.tokens = min(burst, self.measure(now_ms) - value)

    def record_and_throttle_ms(self, value: float, now_ms: int) -> int:
        tokens = self.measure(now_ms)
        if tokens < 0:
            return int32(java_round(-tokens / self.bound * 1000))
        self.record(value, now_ms)
        return 0


def int32(value: int) -> int:
    return int.from_bytes((value % 2**32).to_bytes(4, "big"), "big", signed=True)


def java_round(value: float) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return 2**63 - 1 if value > 0 else -(2**63)
    return max(-(2**63), min(2**63 - 1, math.floor(Fraction(value) + Fraction(1, 2))))
