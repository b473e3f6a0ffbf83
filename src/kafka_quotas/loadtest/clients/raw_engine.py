"""All raw clients of a run in one event loop, uvloop's where it is installed."""

import asyncio
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from kafka_quotas.loadtest.clients.raw_client import RawClient
from kafka_quotas.loadtest.engine import LoadClient

_LOOK_S: Final = 0.05


class RawEngine:
    """The engine of up to a thousand raw clients."""

    def __init__(self, clients: Sequence[RawClient]) -> None:
        self._clients = tuple(clients)

    @property
    def clients(self) -> Sequence[LoadClient]:
        """The clients, in the order they were given."""
        return self._clients

    def run(self, stop: threading.Event) -> None:
        """Nothing; the run is over, or `stop` was set, or a client's `error` is."""
        factory = None
        if find_spec("uvloop") is not None:
            import uvloop  # noqa: PLC0415 - only a run of raw clients needs it

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._run(stop))

    async def _run(self, stop: threading.Event) -> None:
        broken: list[Exception] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: broken.append(context.get("exception") or RuntimeError(str(context["message"])))
        )
        lives = [asyncio.ensure_future(client.live()) for client in self._clients]
        try:
            while any(client.is_going_on for client in self._clients) and not stop.is_set():
                if broken or any(client.error is not None for client in self._clients):
                    break
                await asyncio.sleep(self._look_s())
        finally:
            for client in self._clients:
                client.end()
            for life in lives:
                life.cancel()
            outcomes = await asyncio.gather(*lives, return_exceptions=True)
        for failure in (*broken, *outcomes):
            if isinstance(failure, Exception):
                raise failure.exceptions[0] if isinstance(failure, ExceptionGroup) else failure

    def _look_s(self) -> float:
        """How long to wait for the next look: no longer than the run lasts."""
        left_s = (max(client.end_ns for client in self._clients) - time.monotonic_ns()) / 1e9
        return min(max(left_s, 0.001), _LOOK_S)
