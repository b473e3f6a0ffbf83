"""Clients of a quota, simulated: Kafka's own arithmetic in a closed loop (record, be throttled, wait).

The traces are what a client would see acknowledged, as (t_ms, bytes); the quota keeps them, exactly as a broker does.
"""

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
        manager = self._manager(QuotaType.PRODUCE)
        now, acks = float(START_MS), []
        while now < START_MS + windows * self.window_ms:
            now += self.request / self.link * 1000
            acks.append((now, self.request))
            now += manager.record_and_throttle_ms(*CLIENT, self.request, int(now))
        return acks

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
        manager.update_quota(Entity.of(client_id=CLIENT[1]), self.quota)
        return manager
