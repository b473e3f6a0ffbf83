"""Recommended limits beside the demand of generated clients, recorded with and without quotas in force.

    python benchmarks/recommend_known_demand.py [--days 21] [--minutes 5]

Every client wants a known rate: steady, in bursts, more in one hour of the week, growing, or over ten connections. A
waiting client sends its next request when it has worked for as long as the rate wants, after the throttle time; a
queueing one sends at ten times its rate whatever has piled up meanwhile. They are recorded without quotas, and under a
quota of 60 % of what they want, enforced by Kafka's algorithm. The true demand is the rate in the busiest hour, at the
end of the horizon of 30 days where it grows. The error is that of the demand found, before headroom.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import orjson

from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW
from kafka_quotas.core.quotas.quota_bucket import RateBucket
from kafka_quotas.pipeline.buckets.proposal import DefaultScope
from kafka_quotas.pipeline.engine.events import EventsRequest, EventsWatcher, open_events
from kafka_quotas.pipeline.engine.job import Engine, ignore_progress
from kafka_quotas.pipeline.engine.spark_settings import SparkSettings
from kafka_quotas.pipeline.ingest.job import IngestRequest, ingest
from kafka_quotas.pipeline.ingest.plan import IngestSettings
from kafka_quotas.pipeline.jobs.recommend.job import recommend
from kafka_quotas.pipeline.jobs.recommend.plan import RecommendPlan

MONDAY_MS = 1_793_577_600_000  # 2026-11-02 0:00 UTC
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
REQUESTS_PER_SECOND = 5
HORIZON_DAYS = 30.0
QUOTA_SHARE = 0.6


class Client(NamedTuple):
    """A client with a known demand in bytes/s."""

    name: str
    rate: float
    burst: float = 1.0
    """By which factor it wants more in one of ten seconds."""
    weekly: float = 1.0
    """By which factor it wants more on Fridays."""
    growth_per_day: float = 0.0
    """Share of the first day's rate that a day adds."""
    connections: int = 1
    queues: bool = False

    def wanted(self, day: int, ms: float = 0.0) -> float:
        """Return the rate that it wants at a time of a day."""
        friday = self.weekly if day % 7 == 4 else 1.0
        burst = self.burst if int(ms / 1000) % 10 == 9 else 1.0
        return self.rate * friday * burst * (1 + self.growth_per_day * day)

    def true_demand(self, days: int) -> float:
        """Return the rate of its busiest hour over the quota window, at the end of the horizon where it grows."""
        seconds = DEFAULT_WINDOW.samples * DEFAULT_WINDOW.window_s
        bursts = 1 + (self.burst - 1) * -(-seconds // 10) / seconds
        end = days - 1 + (HORIZON_DAYS if self.growth_per_day else 0)
        return self.rate * self.weekly * bursts * (1 + self.growth_per_day * end)


CLIENTS = (
    Client("steady", 1e6),
    Client("bursty", 1e6, burst=4.0),
    Client("fridays", 5e5, weekly=3.0),
    Client("growing", 1e6, growth_per_day=0.02),
    Client("ten-connections", 2e6, connections=10),
    Client("queueing", 1e6, queues=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("--minutes", type=int, default=5)
    given = parser.parse_args()
    print(f"{'client':18}{'wants':>12}{'quota':>12}{'found':>12}{'error':>9}  {'held':>6}  note")
    for share in (None, QUOTA_SHARE):
        with tempfile.TemporaryDirectory() as folder:
            show(Path(folder), given.days, given.minutes, share)


def show(folder: Path, days: int, minutes: int, share: float | None) -> None:
    """Print a line for each client."""
    log = folder / "events.jsonl"
    with log.open("wb") as file:
        for client in CLIENTS:
            file.writelines(orjson.dumps(event) + b"\n" for event in recorded(client, days, minutes, share))
    spark = SparkSettings(log_file=folder / "spark.log")
    target = EventsRequest(data=str(folder / "data"), spark=spark, engine=Engine.LOCAL)
    watcher = EventsWatcher(progress=ignore_progress, chosen=lambda _: None)
    settings = IngestSettings(cluster="c")
    ingest(IngestRequest(patterns=(), paths=(str(log),), replaced=(), target=target, settings=settings), watcher)
    plan = RecommendPlan(scope=DefaultScope.USER, horizon_days=HORIZON_DAYS)
    with (
        mock.patch("kafka_quotas.pipeline.jobs.recommend.clients.NEEDIEST_SHOWN", len(CLIENTS)),
        mock.patch("kafka_quotas.pipeline.jobs.recommend.advice.NEEDIEST_SHOWN", len(CLIENTS)),
        open_events(target, watcher) as events,
    ):
        result = recommend(events, plan, step=lambda _: None)
    found = {each.user: each for advice in result.advices for each in advice.neediest}
    for client in CLIENTS:
        demand, wants = found[client.name], client.true_demand(days)
        needed, implied = demand.needed, demand.implied
        assert implied is not None
        note = "unknown, at least" if implied.is_unknown else "at least" if implied.is_held else ""
        quota = "none" if share is None else f"{share:.0%}"
        error = needed / wants - 1
        print(
            f"{client.name:18}{wants:12,.0f}{quota:>12}{needed:12,.0f}{error:9.1%}  {implied.held_share:6.0%}  {note}",
            flush=True,
        )


def recorded(client: Client, days: int, minutes: int, share: float | None) -> Iterator[dict[str, object]]:
    """Yield the events of a client: some minutes at noon of each day, with the throttle times of its quota."""
    for day in range(days):
        begin_ms = MONDAY_MS + day * DAY_MS + 12 * HOUR_MS
        bucket = None
        if share is not None:
            bucket = RateBucket((client.name, ""), DEFAULT_WINDOW.samples, DEFAULT_WINDOW.window_ms)
            bucket.set_bound(client.wanted(day) * share)
        size = int(client.wanted(day) / REQUESTS_PER_SECOND)
        next_ms = [begin_ms + 1000.0 * each / REQUESTS_PER_SECOND for each in range(client.connections)]
        end_ms, sent = begin_ms + minutes * 60_000, 0
        while (at_ms := min(next_ms)) < end_ms:
            connection = next_ms.index(at_ms)
            throttle_ms = 0 if bucket is None else bucket.record_and_throttle_ms(float(size), int(at_ms))
            yield event(client, int(at_ms), size, connection, throttle_ms)
            sent += 1
            work_ms = 1000 * size / client.wanted(day, at_ms - begin_ms) * client.connections
            free_ms = at_ms + throttle_ms + (work_ms / 10 if client.queues else work_ms)
            next_ms[connection] = max(free_ms, begin_ms + sent * work_ms) if client.queues else free_ms


def event(client: Client, ts_ms: int, size: int, connection: int, throttle_ms: int) -> dict[str, object]:
    return {
        "v": 1,
        "cluster": "c",
        "broker_id": 1,
        "ts_ms": ts_ms,
        "user": client.name,
        "client_id": "app",
        "ip": "10.0.0.1",
        "quota_type": "produce",
        "bytes": size,
        "thread_ms": 0.0,
        "mutations": 0,
        "throttle_ms": throttle_ms,
        "api_key": 0,
        "is_exempt": False,
        "connection": f"{client.name}-{connection}",
    }


if __name__ == "__main__":
    main()
