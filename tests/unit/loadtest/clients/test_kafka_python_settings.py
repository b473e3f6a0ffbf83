"""Client properties by librdkafka's names that kafka-python's clients heed as well."""

from dataclasses import replace

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.kafka_python.settings import request_timeout_ms, shared_settings
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload

CLIENT = ClientLoad(name=ClientName(user=None, client_id="a"), workload=Workload.PRODUCE, topic="t")
PLAN = LoadPlan(bootstrap="127.0.0.1:1", entities=(CLIENT,), duration_s=1, warmup_s=0, window=QuotaWindow())


def with_property(name: str, value: str) -> ClientLoad:
    return replace(CLIENT, properties=((name, value),))


def test_an_answer_is_waited_for_as_long_as_is_asked() -> None:
    assert request_timeout_ms(PLAN, with_property("request.timeout.ms", "3000")) == 3000
    assert request_timeout_ms(PLAN, CLIENT) > 60_000
    with pytest.raises(UsageError, match=r"request\.timeout\.ms"):
        request_timeout_ms(PLAN, with_property("request.timeout.ms", "soon"))


def test_a_broker_that_is_not_asked_for_its_version_is_given_one() -> None:
    assert "api_version" not in shared_settings(PLAN, CLIENT)
    assert shared_settings(PLAN, with_property("api.version.request", "false"))["api_version"] == (2, 1)
    both = replace(CLIENT, properties=(("api.version.request", "false"), ("broker.version.fallback", "new")))
    with pytest.raises(UsageError, match=r"broker\.version\.fallback"):
        shared_settings(PLAN, both)
