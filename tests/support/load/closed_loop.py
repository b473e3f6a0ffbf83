"""Clients of a quota, simulated: Kafka's own arithmetic in a closed loop (record, be throttled, wait).

The traces are what a client would see acknowledged, as (t_ms, bytes); the quota keeps them, exactly as a broker does.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType

START_MS = 1_700_000_000_137
CLIENT = ("ANONYMOUS", "greedy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A greedy client: its quota, the bytes of a request, and what the link carries (bytes/s)."""

    quota: float
    request: int
    link: float = 200e6
    samples: int = 3

    @property
    def window_ms(self) -> int:
        return self.samples * 1000

    def produce(self, windows: float) -> list[tuple[float, int]]:
        """A producer: every request is taken, and the connection is deaf for the throttle time after it."""
        return [(START_MS + t_ms, self.request) for t_ms, _ in self.throttled(windows * self.window_ms)]

    def throttled(
        self,
        until_ms: float,
        *,
        change: tuple[float, float] = (math.inf, 0.0),
        pause_ms: Callable[[float], float] = lambda _t_ms: 0.0,
    ) -> Iterator[tuple[float, int]]:
        """Yield when each request of a producer is taken, and its throttle time.

        The quota becomes another one at a time (`change`), and the client pauses before a request for `pause_ms`.
        """
        manager = self._manager(QuotaType.PRODUCE)
        now_ms, is_changed = 0.0, False
        while now_ms < until_ms:
            if now_ms >= change[0] and not is_changed:
                is_changed = True
                manager.limits.update(Entity.of(client_id=CLIENT[1]), change[1])
            now_ms += self.request / self.link * 1000 + pause_ms(now_ms)
            throttle_ms = manager.record_and_throttle_ms(*CLIENT, self.request, START_MS + int(now_ms))
            yield now_ms, throttle_ms
            now_ms += throttle_ms

    def consume(self, windows: float) -> list[tuple[float, int]]:
        """A consumer of a broker: a fetch over quota is un-recorded, answered empty, and asked again later."""
        manager = self._manager(QuotaType.FETCH)
        now, acks = float(START_MS), []
        while now < START_MS + windows * self.window_ms:
            now += self.request / self.link * 1000
            throttle_ms = manager.record_and_throttle_ms(*CLIENT, self.request, int(now))
            if throttle_ms > 0:
                manager.record_without_throttle(*CLIENT, -self.request, int(now))
                now += throttle_ms
            else:
                acks.append((now, self.request))
        return acks

    def _manager(self, quota_type: QuotaType) -> ClientQuotaManager:
        manager = ClientQuotaManager(quota_type, QuotaWindow(samples=self.samples))
        manager.limits.update(Entity.of(client_id=CLIENT[1]), self.quota)
        return manager
