"""The file of a cost model: written, read, and refused whole."""

import json
from pathlib import Path

import pytest

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.enforcement.config.cost_model_file import read_cost_model, write_cost_model

MODEL = CostModel(
    source="broker-1:9092",
    other=ApiCost(request_nanos=120_000),
    apis={0: ApiCost(request_nanos=90_000, request_byte_nanos=0.5, response_byte_nanos=0.25)},
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    write_cost_model(path, MODEL)
    assert read_cost_model(path) == MODEL


def test_costs_are_per_request_and_byte_and_unnamed_apis_cost_what_others_do() -> None:
    assert MODEL.request_nanos(0, 1000) == 90_500
    assert MODEL.response_nanos(0, 1000) == 250
    assert MODEL.request_nanos(3, 1000) == 120_000
    assert MODEL.response_nanos(3, 1000) == 0


GOOD = {"version": 1, "source": "x", "apis": {}, "other": {"request_us": 1}}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "a list is not a mapping"),
        ({"version": 2}, "version: it is not a cost model of version 1 (and 3 more)"),
        ({**GOOD, "more": 1}, "more: unknown name 'more'"),
        ({**GOOD, "source": 1}, "source: 1 is not a text"),
        ({"version": 1, "source": "x", "apis": {}}, "other is missing"),
        ({**GOOD, "apis": {"Prduce": {"request_us": 1}}}, "apis: there is no API 'Prduce'"),
        ({**GOOD, "apis": {"Produce": {}}}, "apis.Produce: request_us is missing"),
        (
            {**GOOD, "apis": {"Produce": {"request_us": -1}}},
            "apis.Produce.request_us: it must be a number from 0 on, not -1",
        ),
        ({**GOOD, "other": {"request_us": float("nan")}}, "other.request_us: it must be a number from 0 on, not nan"),
    ],
)
def test_what_is_no_cost_model_is_refused(tmp_path: Path, data: object, told: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError) as caught:
        read_cost_model(path)
    assert caught.value.message.startswith(f"{path}: {told}")


def test_files_that_can_not_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.json"):
        read_cost_model(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(UsageError, match="not JSON"):
        read_cost_model(broken)
    with pytest.raises(KafkaQuotasError, match="cannot write"):
        write_cost_model(tmp_path / "no" / "folder.json", MODEL)
