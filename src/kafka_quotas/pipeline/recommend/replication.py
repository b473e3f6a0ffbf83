"""What followers took of each broker's capacity while it was recorded, from the job `usage`."""

import re
from collections import defaultdict
from typing import Final

from kafka_quotas.pipeline.usage.job import UsageTables

_FETCHER: Final = re.compile(r"broker-(\d{1,9})-fetcher-\d+")
"""The client-id of a follower's fetcher (`BrokerBlockingSender`, Kafka 4.0)."""


def replication_of(tables: UsageTables, *, cluster: str, seconds: int) -> dict[int, tuple[float, float]]:
    """Return what followers fetch from each broker and what each fetches as one, in bytes/s.

    `seconds` is the length of the recording. A follower is recognised by the client-id of its fetcher.
    """
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))  # whole bytes add up alike in any order
    for row in tables.replication().to_pylist():
        if row["cluster"] == cluster:
            amount = row["bytes"]
            sent, received = found[row["broker_id"]]
            found[row["broker_id"]] = (sent + amount, received)
            if follower := _FETCHER.fullmatch(row["follower"]):
                sent, received = found[int(follower[1])]
                found[int(follower[1])] = (sent, received + amount)
    return {broker_id: (sent / seconds, received / seconds) for broker_id, (sent, received) in found.items()}
