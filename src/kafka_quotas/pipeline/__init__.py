"""Recorded traffic as the basis of quotas, on PySpark or on one machine without it.

Contract: kernels and parsers know no Spark. What a job makes, later jobs read by SQL. Sessions and paths are arguments.
The tables are in `tables.schemas`, the folder that holds them in `tables.lake`. What this module offers loads PySpark
when it is first used.
"""

from typing import TYPE_CHECKING

from kafka_quotas.doors import lazy_names

if TYPE_CHECKING:
    from kafka_quotas.core.groups.group import Group as Group
    from kafka_quotas.core.groups.group import GroupMember as GroupMember
    from kafka_quotas.core.groups.group import GroupRates as GroupRates
    from kafka_quotas.pipeline.buckets.proposal import Proposal as Proposal
    from kafka_quotas.pipeline.ingest.log_source import DaemonEventLog as DaemonEventLog
    from kafka_quotas.pipeline.ingest.log_source import KafkaJmxMetrics as KafkaJmxMetrics
    from kafka_quotas.pipeline.ingest.log_source import KafkaRequestLog as KafkaRequestLog
    from kafka_quotas.pipeline.ingest.log_source import PrometheusMetrics as PrometheusMetrics
    from kafka_quotas.pipeline.library import pack_events as pack_events
    from kafka_quotas.pipeline.library import read_request_logs as read_request_logs
    from kafka_quotas.pipeline.library import recommend as recommend
    from kafka_quotas.pipeline.library import replay as replay
    from kafka_quotas.pipeline.library import usage as usage
    from kafka_quotas.pipeline.library import usage_profile as usage_profile

__getattr__, __dir__ = lazy_names(__name__)
