"""Consumers on a virtual clock that fetch from one broker through sessions with common buckets."""

import heapq
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.support.frames.enforcement import CLIENT_ID, START_MS, Pair, fetch, fetch_response, set_limit

from kafka_quotas.core.groups.group import Group, GroupTree
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.client_policy import PolicyFile
from kafka_quotas.enforcement.config.rules import EnforcementRules
from kafka_quotas.enforcement.quotas.quota_registry import QuotaRegistry

VERSION = 6
"""A Fetch without sessions: what a new connection sends is the same as what an old one does."""
MAX_WAIT_MS = 500
"""How long a client waits for data as a rule."""
EMPTY_BYTES = 16
"""The length of a response without data, length field excluded."""


@dataclass(kw_only=True, eq=False)
class Fetcher:
    """One consumer: its connection, and what it got."""

    asks_bytes: int = 50_000_000
    wait_ms: int = MAX_WAIT_MS
    """How long it lets a response take."""
    batch_bytes: int = 1000
    """The least that the broker returns."""
    has_data: Callable[[int], bool] = lambda _: True
    """Whether there is data for it at a time."""
    reconnects: bool = False
    """Whether it takes a new connection for each Fetch."""
    waits: bool = False
    """Whether it waits for the throttle time by itself."""
    client_id: str = CLIENT_ID
    pair: Pair = field(init=False)
    got: list[tuple[int, int]] = field(default_factory=list)
    """(time in ms since the start, bytes) of each response with data."""
    told_ms: list[int] = field(default_factory=list)
    """The throttle times that it was told."""
    asked_ms: int = 0
    longest_ms: int = 0
    """The longest time that a response took."""


class FetchWorld:
    """A broker, its buckets, and its consumers."""

    def __init__(
        self, *, limit: float | None, rules: EnforcementRules, latency_ms: int = 1, groups: Sequence[Group] = ()
    ) -> None:
        self.rules = rules
        self.registry = QuotaRegistry(rules.window, policies=rules.policies)
        self.registry.replace(PolicyFile(groups=GroupTree(groups)))
        self.broker = self.registry.broker(0)
        self.set_limit(limit)
        self.now_ms = START_MS
        self.latency_ms = latency_ms
        self.sent_bytes = 0
        """What the broker returned, delivered or not."""
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    def set_limit(self, limit: float | None) -> None:
        set_limit(self.broker, QuotaType.FETCH, Entity.of(client_id=CLIENT_ID), limit)

    def set_groups(self, groups: Sequence[Group]) -> None:
        self.registry.replace(PolicyFile(groups=GroupTree(groups)))

    def add(self, fetcher: Fetcher, after_ms: int = 0) -> Fetcher:
        self._at(self.now_ms + after_ms, lambda: self._connect(fetcher))
        return fetcher

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._due and self._due[0][0] <= end_ms:
            self.now_ms, _, act = heapq.heappop(self._due)
            act()
        self.now_ms = end_ms

    def leave(self, fetcher: Fetcher) -> None:
        """End the connection of a fetcher, whatever is in flight."""
        fetcher.pair.session.state.close()
        fetcher.pair.session.end(self.now_ms)

    def _at(self, at_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_ms, next(self._numbers), act))

    def _connect(self, fetcher: Fetcher) -> None:
        pair = fetcher.pair = Pair(rules=self.rules, broker=self.broker)
        pair.session.state.turn.on_turn = lambda: self._at(
            self.now_ms, lambda: self._step(fetcher, pair, lambda: pair.session.state.resume_held(self.now_ms))
        )
        self._ask(fetcher, pair)

    def _ask(self, fetcher: Fetcher, pair: Pair) -> None:
        fetcher.asked_ms = self.now_ms
        asked = fetch(
            1, version=VERSION, max_bytes=fetcher.asks_bytes, client_id=fetcher.client_id, wait_ms=fetcher.wait_ms
        )
        self._step(fetcher, pair, lambda: pair.send(asked) and None)

    def _step(self, fetcher: Fetcher, pair: Pair, act: Callable[[], object]) -> None:
        """Do something at a connection, and everything that follows at the same time."""
        pair.now_ms = self.now_ms
        act()
        pair._collect()
        if pair.upstream:
            wait_ms, _, size = struct.unpack_from(">iii", pair.upstream, len(pair.upstream) - 17)
            pair.upstream = b""
            self._broker(fetcher, pair, size, wait_ms)
        if pair.client:
            told_ms, length = struct.unpack_from(">i", pair.client, 8)[0], len(pair.client)
            pair.client = b""
            self._responded(fetcher, pair, told_ms, length - 4)
        wake_ms = pair.session.state.wake_at_ms
        if wake_ms is not None:
            self._at(wake_ms, lambda: self._step(fetcher, pair, lambda: pair.session.state.wake(self.now_ms)))

    def _broker(self, fetcher: Fetcher, pair: Pair, size: int, wait_ms: int) -> None:
        # A broker holds a Fetch until there is data, and no longer than it is asked to.
        begin_ms = self.now_ms - START_MS
        waited_ms = next((ms for ms in range(0, max(1, wait_ms), 10) if fetcher.has_data(begin_ms + ms)), None)
        after_ms = wait_ms if waited_ms is None else waited_ms + self.latency_ms
        # For 0 bytes librdkafka's embedded cluster returns nothing, where a broker returns one batch.
        data_bytes = 0 if waited_ms is None or size <= 0 else max(fetcher.batch_bytes, size - EMPTY_BYTES)
        length = data_bytes + EMPTY_BYTES
        self.sent_bytes += length

        def answer() -> None:
            if fetcher.pair is pair:
                self._step(fetcher, pair, lambda: pair.answer(fetch_response(1, size=length + 4, version=VERSION)))

        self._at(self.now_ms + after_ms, answer)

    def _responded(self, fetcher: Fetcher, pair: Pair, told_ms: int, length: int) -> None:
        fetcher.longest_ms = max(fetcher.longest_ms, self.now_ms - fetcher.asked_ms)
        if told_ms:
            fetcher.told_ms.append(told_ms)
        if length > EMPTY_BYTES:
            fetcher.got.append((self.now_ms - START_MS, length))
        after_ms = self.latency_ms + (told_ms if fetcher.waits else 0)
        if fetcher.reconnects:
            self.leave(fetcher)
            self._at(self.now_ms + after_ms, lambda: self._connect(fetcher))
        else:
            self._at(self.now_ms + after_ms, lambda: self._ask(fetcher, pair))


def delivered(fetchers: list[Fetcher], until_ms: int) -> int:
    """What consumers got until a time since the start."""
    return sum(size for each in fetchers for at_ms, size in each.got if at_ms <= until_ms)
