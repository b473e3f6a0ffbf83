"""Work in slices, done in one go."""

from collections.abc import Generator
from typing import TypeVar

from kafka_quotas.enforcement.quotas.broker_quotas import BrokerQuotas

T = TypeVar("T")


def run_whole(work: Generator[None, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def forget_idle(quotas: BrokerQuotas, now_ms: int) -> None:
    """Drop what a sweep of the daemon would drop of one broker's quotas."""
    run_whole(quotas.registry.expiry(now_ms))
