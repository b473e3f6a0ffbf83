"""The usage of a client over its brokers, in a report."""

import math

import pyarrow as pa
from tests.support.pipeline.events import events_table, proposal

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.pipeline.report.traffic import traffic_of
from kafka_quotas.pipeline.usage.job import usage_tables
from kafka_quotas.pipeline.usage.task import UsagePlan, usage_task


def test_a_client_is_nearest_to_its_limit_where_that_is_0() -> None:
    in_force = proposal("in force", (Entity.of(user="alice"), {"producer_byte_rate": 1000.0}))
    rows = [{"broker_id": broker_id, "bytes": 100 * broker_id} for broker_id in (1, 2)]
    tables = usage_tables([usage_task([events_table(rows)], UsagePlan(quotas=in_force, seconds=1))])
    place = tables.all_buckets.column_names.index("quota")
    tables.all_buckets = tables.all_buckets.set_column(place, "quota", pa.array([0.0, 1000.0]))
    (found,) = traffic_of(tables, cluster="default", seconds=1)
    assert (found.limit, found.used) == (0.0, math.inf)
