"""Ctrl-C and SIGTERM while something has to be put back: the first one ends the work, none ends the putting back."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """What is done with signals while `interruptible` lasts. `seen`: there was one.

    `tell` is called with the number of those that came too late to change anything.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.seen = False
        self._held = False
        self._tell = tell

    @contextmanager
    def held(self) -> Iterator[None]:
        """Signals are noted and change nothing in this context: what it does is done to its end."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt` at the first signal, unless they are held; later ones are told and ignored."""
        first, self.seen = not self.seen, True
        if first and not self._held:
            raise KeyboardInterrupt
        self._tell()


@contextmanager
def interruptible(tell: Callable[[], None]) -> Iterator[Interruption]:
    """Ctrl-C, SIGTERM and SIGHUP as one interruption, in the main thread; elsewhere they stay what they were."""
    interruption = Interruption(tell)
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.signal(number, interruption.on_signal) for number in _SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
