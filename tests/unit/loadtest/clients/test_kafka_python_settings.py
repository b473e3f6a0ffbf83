"""Client properties by librdkafka's names that kafka-python's clients heed as well."""

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.loadtest.clients.engine import RunClock
from kafka_quotas.loadtest.clients.kafka_python.consumer import KafkaPythonConsumer
from kafka_quotas.loadtest.clients.kafka_python.settings import request_timeout_ms, shared_settings
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName, LoadPlan
from kafka_quotas.loadtest.plan.workload import Workload

CLIENT = ClientLoad(name=ClientName(user=None, client_id="a"), workload=Workload.PRODUCE, topic="t")
PLAN = LoadPlan(bootstrap="127.0.0.1:1", entities=(CLIENT,), duration_s=1, warmup_s=0, window=QuotaWindow())


def with_property(name: str, value: str) -> ClientLoad:
    return replace(CLIENT, properties=((name, value),))


def test_an_answer_is_waited_for_as_long_as_is_asked() -> None:
    assert request_timeout_ms(PLAN, with_property("request.timeout.ms", "3000"), default_ms=1) == 3000
    assert request_timeout_ms(PLAN, CLIENT, default_ms=60_000) == 60_000
    with pytest.raises(UsageError, match=r"request\.timeout\.ms"):
        request_timeout_ms(PLAN, with_property("request.timeout.ms", "soon"), default_ms=1)


@pytest.mark.parametrize(("given", "wait_ms"), [("3000", 50), ("20", 19)])
def test_a_consumer_waits_as_long_as_is_asked(monkeypatch: pytest.MonkeyPatch, given: str, wait_ms: int) -> None:
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr("kafka.KafkaConsumer", lambda **settings: opened.append(settings) or MagicMock())
    reader = replace(with_property("request.timeout.ms", given), workload=Workload.CONSUME)
    clock = RunClock(start_ns=0, measure_from_ns=0, end_ns=0)

    KafkaPythonConsumer(replace(PLAN, entities=(reader,)), reader, clock, ()).opened()

    (settings,) = opened
    assert settings["request_timeout_ms"] == int(given)
    assert settings["fetch_max_wait_ms"] == wait_ms


def test_a_broker_that_is_not_asked_for_its_version_is_given_one() -> None:
    assert "api_version" not in shared_settings(PLAN, CLIENT)
    assert shared_settings(PLAN, with_property("api.version.request", "false"))["api_version"] == (2, 1)
    both = replace(CLIENT, properties=(("api.version.request", "false"), ("broker.version.fallback", "new")))
    with pytest.raises(UsageError, match=r"broker\.version\.fallback"):
        shared_settings(PLAN, both)
