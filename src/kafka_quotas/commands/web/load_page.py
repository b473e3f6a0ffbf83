"""The live page of a load test: every client's rate against its quota while the load runs.

The load writes what it has done a few times a second, in its own thread, and never waits for a browser. The server has
a thread of its own and hands out the last document that is whole.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kafka_quotas import enforcement
from kafka_quotas.commands.web.asset_files import asset_routes
from kafka_quotas.commands.web.quota_documents import Document, duration_text, finite, name_text
from kafka_quotas.loadtest import UNITS, ClientProgress, RunProgress, Watcher

MAX_CLIENTS: Final = 12
"""Most clients with a chart: those throttled longest, then the fastest."""
MAX_POINTS: Final = 120
"""Most points of a chart; where there are more every second one goes."""
MAX_STEPS: Final = 5
_EVERY_S: Final = 1.0


class LoadPage:
    """What the page of one load test shows."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._steps: deque[str] = deque(maxlen=MAX_STEPS)
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._every_s = _EVERY_S
        self._last_s = 0.0
        self._document = self._made(None)

    def watcher(self, other: Watcher | None) -> Watcher:
        """Return a watcher that updates the page and calls the other one, where there is one."""

        def watch(progress: RunProgress) -> None:
            self.update(progress)
            if other is not None:
                other(progress)

        return watch

    def step(self, other: Callable[[str], None]) -> Callable[[str], None]:
        """Return a receiver of steps that shows them on the page and passes them on."""

        def note(text: str) -> None:
            self._steps.append(text)
            other(text)

        return note

    def update(self, progress: RunProgress) -> None:
        """Take the state of the run, at most once a second of its time."""
        if progress.elapsed_s < self._last_s:  # the next variant, or the load without quotas
            self._points, self._every_s, self._last_s = {}, _EVERY_S, 0.0
        if self._points and progress.elapsed_s - self._last_s < self._every_s:
            return
        self._last_s = progress.elapsed_s
        for client in progress.entities:
            points = self._points.setdefault(_key(client), [])
            points.append((round(progress.elapsed_s, 1), client.rate))
            if len(points) > MAX_POINTS:
                del points[::2]
                self._every_s = max(self._every_s, points[1][0] - points[0][0])
        self._document = self._made(progress)

    def routes(self) -> dict[str, enforcement.HttpHandler]:
        """Return the paths of the page."""

        async def answer(_: enforcement.Query) -> enforcement.HttpReply:
            return enforcement.json_reply({**self._document, "steps": list(self._steps)})

        return {**asset_routes("load_test"), "/api/run": answer}

    def _made(self, progress: RunProgress | None) -> Document:
        if progress is None:
            empty: Document = {"elapsed_s": 0, "total_s": 0, "done_s": 0, "most_s": 0, "left_out": 0, "clients": []}
            return {"title": self._title, "phase": "preparing", **empty}
        urgent = sorted(progress.entities, key=lambda each: (-each.throttle_sum_ms, -each.rate))[:MAX_CLIENTS]
        clients = [each for each in progress.entities if each in urgent]  # charts keep their order
        return {
            "title": self._title,
            "phase": "warming up" if progress.warming_up else "measuring",
            "elapsed_s": round(progress.elapsed_s, 1),
            "total_s": round(progress.total_s, 1),
            "done_s": round(progress.done_s, 1),
            "most_s": round(progress.most_s, 1),
            "left_out": len(progress.entities) - len(clients),
            "clients": [_client_document(each, self._points[_key(each)]) for each in clients],
        }


def _key(client: ClientProgress) -> str:
    return f"{client.entity.name.label} {client.entity.workload.value}"


def _client_document(client: ClientProgress, points: list[tuple[float, float]]) -> Document:
    load = client.entity
    unit = UNITS[load.workload]
    top = max(load.quota or 0.0, *(rate for _, rate in points)) * 1.1
    throttled = f"{client.throttle_count:,}x, {duration_text(client.throttle_sum_ms)}" if client.throttle_count else ""
    return {
        "client": name_text(load.name.label) + (" (control)" if load.control else ""),
        "does": load.workload.value,
        "rate": unit.text(client.rate),
        "bound": None if load.quota is None else unit.text(load.quota),
        "bound_value": finite(load.quota),
        "share": None if not load.quota else finite(client.rate / load.quota),
        "throttled": throttled,
        "waiting": client.waiting,
        "top": top,
        "top_text": unit.text(top),
        "points": [{"at_s": at_s, "rate": rate, "text": f"{at_s:.0f} s: {unit.text(rate)}"} for at_s, rate in points],
    }


@contextmanager
def served(page: LoadPage, address: enforcement.Address) -> Iterator[enforcement.Address]:
    """Serve the page in a thread until the block ends.

    Yields:
        The address of the page.
    """
    loop = asyncio.new_event_loop()
    server = enforcement.HttpServer(address, pages=page.routes())
    thread = threading.Thread(target=loop.run_forever, name="load-test-page", daemon=True)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        yield enforcement.Address(host=address.host, port=port)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
