"""What a load's rate counts, which follows from what the load does."""

from enum import StrEnum

from kafka_quotas.core.units import format_bytes
from kafka_quotas.loadtest.workload import Workload


class RateUnit(StrEnum):
    """The unit of an achieved rate and of the quota that it is held against."""

    BYTES = "bytes/s"
    REQUESTS = "requests/s"
    PARTITIONS = "partitions/s"
    CONNECTIONS = "connections/s"

    def text(self, rate: float) -> str:
        """A rate for people: `10.5 MB/s`, `4.98 requests/s`."""
        return f"{format_bytes(rate)}/s" if self is RateUnit.BYTES else f"{rate:.4g} {self.value}"


UNITS = {
    Workload.PRODUCE: RateUnit.BYTES,
    Workload.CONSUME: RateUnit.BYTES,
    Workload.REQUESTS: RateUnit.REQUESTS,
    Workload.MUTATE: RateUnit.PARTITIONS,
    Workload.CONNECT: RateUnit.CONNECTIONS,
}
"""The unit of each workload's rate."""
