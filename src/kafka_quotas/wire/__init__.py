"""The Kafka protocol without I/O: headers, tables of what can be patched where, and the patches."""

from typing import TYPE_CHECKING

from kafka_quotas.doors import lazy_names

if TYPE_CHECKING:
    from kafka_quotas.wire.client.admin import CreateTopics, DeleteTopics, MetadataRequest, NewTopic
    from kafka_quotas.wire.client.probes import CostProbe, ProbeAnswer
    from kafka_quotas.wire.client.records import single_record_batch
    from kafka_quotas.wire.protocol.api_table import API_TABLE, error_name

__getattr__, __dir__ = lazy_names(__name__)
