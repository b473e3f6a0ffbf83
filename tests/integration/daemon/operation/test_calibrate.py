"""`daemon calibrate` at a real broker: a cost model that the daemon takes, and nothing left behind."""

import json
from pathlib import Path

from tests.support.brokers.servers import Kafka
from tests.support.daemon.process import running_daemon
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.api_key import ApiKey
from kafka_quotas.enforcement.config.cost_model_file import read_cost_model

PRODUCE, FETCH = ApiKey.PRODUCE, ApiKey.FETCH


def test_a_model_is_measured_and_nothing_is_left_behind(kafka4: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    upstream = kafka4.bootstrap.split(",")[0]
    options = ["--rounds", "1", "--warm-up", "0.05", "--output", "json"]
    code, out, err = run_cli("daemon", "calibrate", "--upstream", upstream, "--cost-model", str(path), *options)
    assert code == 0, err
    assert "Produce: " in err
    model = read_cost_model(path)
    assert upstream.rpartition(":")[2] in model.source
    assert {api["request_us"] > 0 for api in json.loads(path.read_text())["apis"].values()} == {True}
    assert model.apis[PRODUCE].request_byte_nanos > 0
    assert model.request_nanos(FETCH, 100) > 0
    assert "request_us" in out
    code, left, err = run_cli("describe", "--bootstrap-server", kafka4.bootstrap, "--output", "json")
    assert code == 0, err
    assert "kafka-quotas-calibrate" not in left
    with running_daemon(tmp_path, upstream=upstream, options=["--cost-model", str(path)]) as daemon:
        assert daemon.status().cost_model == model.source


def test_a_cost_model_that_can_not_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text("{}")
    code, _, err = run_cli(
        *("daemon", "run", "--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--cost-model", str(path))
    )
    assert code == 2
    assert f"{path}: version is missing" in err
