"""Recorded traffic as the basis of quotas, on PySpark or on one machine without it.

Contract: kernels and parsers know no Spark. What a job makes, later jobs read by SQL. Sessions and paths are arguments.
The tables are in `tables.schemas`, the folder that holds them in `tables.lake`. What this module offers loads PySpark
when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_quotas.pipeline.ingest.log_source import (
        DaemonEventLog,
        KafkaJmxMetrics,
        KafkaRequestLog,
        PrometheusMetrics,
    )
    from kafka_quotas.pipeline.library import pack_events, read_request_logs, recommend, replay, usage, usage_profile

__all__ = [
    "DaemonEventLog",
    "KafkaJmxMetrics",
    "KafkaRequestLog",
    "PrometheusMetrics",
    "pack_events",
    "read_request_logs",
    "recommend",
    "replay",
    "usage",
    "usage_profile",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "library" if name.islower() else "ingest.log_source"
    return getattr(import_module(f"{__name__}.{place}"), name)
