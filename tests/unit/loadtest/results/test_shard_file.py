"""The plan of a shard is the same after it was written and read."""

import json
from fractions import Fraction

from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.results.run_file import _converted, _plain


def test_a_plan_comes_back_with_its_quotas_as_figures() -> None:
    load = ClientLoad(
        name=ClientName(user=None, client_id="app"),
        workload=Workload.PRODUCE,
        topic="t",
        quotas=(("producer_byte_rate", 200_000.0), ("request_percentage", 1.0)),
        arrivals_per_second=Fraction(1, 3),
    )
    plan = LoadPlan(bootstrap="b:1", entities=(load,), duration_s=1, warmup_s=0, window=QuotaWindow())

    assert _converted(json.loads(json.dumps(_plain(plan))), LoadPlan) == plan
