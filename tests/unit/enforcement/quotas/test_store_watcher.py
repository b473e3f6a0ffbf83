"""The store's thread: whatever a store does, it goes on, says what is wrong, and keeps nobody waiting."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest
from tests.support.core.virtual_clock import VirtualClock

from kafka_quotas.enforcement.control.server import ControlHandler
from kafka_quotas.enforcement.decisions import DecisionError, DecisionRequest
from kafka_quotas.enforcement.quotas import store_watcher as module
from kafka_quotas.enforcement.quotas.store_watcher import Reloaded, StoreWatcher
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.log import LogEvent
from kafka_quotas.stores.store import Snapshot

DEADLINE_S = 20.0


class Store:
    """A store that raises `error` (also when it is closed), and stands still while `goes_on` is cleared."""

    url = "local:x"

    def __init__(self) -> None:
        self.revision = "1"
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.opened = 0

    def open(self) -> "Store":
        self.opened += 1
        return self

    def watch(self, since: str | None, *, timeout_s: float) -> Snapshot | None:
        del timeout_s
        self.goes_on.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error
        return None if since == self.revision else Snapshot(entries=(), revision=self.revision)

    def close(self) -> None:
        if self.error is not None:
            raise self.error


class Followed:
    """A follower of a store, and what came of it."""

    def __init__(self) -> None:
        self.store = Store()
        self.said: list[LogEvent] = []
        self.applied: list[str] = []
        self.refuses: Exception | None = None
        self.counters = Counters()
        self.follower = StoreWatcher(
            self.store.open,  # type: ignore[arg-type]
            loop=asyncio.get_running_loop(),
            clock=VirtualClock(1000),
            counters=self.counters,
            notify=self.said.append,
            on_snapshot=self._apply,
        )

    def _apply(self, snapshot: Snapshot) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.applied.append(snapshot.revision)

    @property
    def trouble(self) -> str | None:
        return self.follower.state.trouble

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():  # noqa: ASYNC110 - what holds is another thread's doing
                await asyncio.sleep(0.01)


def followed(test: Callable[[Followed], Awaitable[None]]) -> Callable[[], None]:
    """Return the test with a follower that runs until its end."""

    async def run() -> None:
        each = Followed()
        each.follower.start()
        try:
            await test(each)
        finally:
            each.store.goes_on.set()
            each.store.error = None
            each.follower.stop()

    return lambda: asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "FIRST_RETRY_S", "LONGEST_RETRY_S"):
        monkeypatch.setattr(module, name, 0.01)


@pytest.mark.parametrize("error", [ValueError("of a kind\nthat nobody expects"), MemoryError(), RecursionError()])
def test_no_exception_of_a_store_ends_its_thread(error: Exception) -> None:
    async def test(each: Followed) -> None:
        each.store.error = error
        await each.until(lambda: each.trouble is not None)
        assert type(error).__name__ in str(each.trouble)
        failures = each.counters.store_failures
        await each.until(lambda: each.counters.store_failures > failures + 3)
        async with asyncio.timeout(DEADLINE_S):
            await each.follower.reread()
        assert [notice.event for notice in each.said] == ["store can't be read; its last content stays in force"]
        each.store.error, each.store.revision = None, "2"
        await each.until(lambda: each.trouble is None)
        await each.until(lambda: each.applied == ["2"])
        assert each.said[-1].event == "store is reached again"

    followed(test)()


@followed
async def test_content_that_cannot_be_used_is_said_and_used_once_it_can(each: Followed) -> None:
    each.refuses = KeyError("a defect")
    each.store.revision = "2"
    await each.until(lambda: each.trouble is not None)
    assert "KeyError" in str(each.trouble)
    async with asyncio.timeout(DEADLINE_S):
        await each.follower.reread()
    assert each.trouble is not None
    failures = each.counters.store_failures
    await each.until(lambda: each.counters.store_failures > failures + 2)
    assert len(each.said) == 1
    each.refuses = None
    await each.until(lambda: each.trouble is None)
    assert each.applied == ["2"]
    assert each.follower.state.revision == "2"


def test_a_store_that_stands_still_keeps_a_reload_waiting_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REREAD_S", 0.05)

    async def test(each: Followed) -> None:
        each.store.goes_on.clear()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(each.follower.reread(), each.follower.reread())
        assert "did not answer within" in str(each.trouble)
        each.store.goes_on.set()
        await each.until(lambda: each.trouble is None)

    followed(test)()


def test_whoever_asks_for_a_reload_gets_an_answer_whatever_happens() -> None:
    async def fails() -> Reloaded:
        raise AttributeError("a defect")

    def unused(*_: object) -> NoReturn:
        raise AssertionError

    def undecided(ask: DecisionRequest) -> DecisionError:
        return DecisionError(str(ask))

    desk = ControlHandler(status=unused, decide=undecided, reload=fails, unmute=unused, groups=unused)
    answer = asyncio.run(desk.answer_line(b'{"op":"reload","id":3}', may_reload=True))
    assert b'"ok":false,"error":"internal error: AttributeError: a defect' in answer
