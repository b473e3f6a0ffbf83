"""What all connections of a daemon share, and the long work on some of them, done so that the others are served."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from kafka_quotas.core.clock import Clock
from kafka_quotas.enforcement.proxy.inherited_sockets import InheritedSockets
from kafka_quotas.enforcement.proxy.transport import PeerCloseWatcher
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import Notify

SLICE_S: Final = 0.001
"""Time for which the loop does long work at once. The pause after it is as long: half of a core at most."""


class SlicedWork:
    """The long work of all connections, which take turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: deque[Callable[[], bool]] = deque()

    def add(self, step: Callable[[], bool]) -> None:
        """Call a step from now on, until it returns that nothing is left."""
        self._steps.append(step)
        if len(self._steps) == 1:
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        began = perf_counter()
        step = self._steps[0]
        while step():
            if perf_counter() - began >= SLICE_S:
                self._steps.rotate(-1)
                break
        else:
            self._steps.popleft()
        if self._steps:
            self._loop.call_later(perf_counter() - began, self._run)


@dataclass(slots=True, kw_only=True)
class ProxyContext:
    """The loop, clock, counters, sockets and watchers that all connections of a daemon share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    counters: Counters
    notify: Notify
    sockets: InheritedSockets = field(default_factory=InheritedSockets)
    """Listening sockets of another process: of the daemon's predecessor, or of its main process."""
    accepts: bool = True
    """Whether connections are accepted here, rather than handed over by another process."""
    close_watcher: PeerCloseWatcher = field(init=False)
    sliced: SlicedWork = field(init=False)

    def __post_init__(self) -> None:
        self.close_watcher = PeerCloseWatcher(self.loop)
        self.sliced = SlicedWork(self.loop)
