"""The document of a run, `kafka-quotas.load-test/3`, and that of a shard: written and read back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.load.results import greedy, result, unlimited

from kafka_quotas.cli.load_test.views.view import load_listing
from kafka_quotas.cli.output.listing import json_text
from kafka_quotas.cli.output.render import envelope
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.loadtest.measurement.delivery import Delivery
from kafka_quotas.loadtest.results.prediction import Prediction, PredictionSource
from kafka_quotas.loadtest.results.result import LoadResult
from kafka_quotas.loadtest.results.run_file import read_run, run_document
from kafka_quotas.loadtest.verdict.judging import Evidence
from kafka_quotas.loadtest.verdict.thresholds import parse_expectation

SCHEMA = json.loads((Path(__file__).parents[4] / "examples" / "load-test-run.schema.json").read_text(encoding="utf-8"))


def _rich() -> LoadResult:
    """A run that has everything a document can hold."""
    judged = replace(
        greedy(failures=(("_MSG_TIMED_OUT", 3),)),
        delivery=Delivery(found=4900, lost=1, duplicated=0, missing=101),
        prediction=Prediction(
            source=PredictionSource.RESPONSES, events=400, predicted_ms=8100, announced_ms=8000, slack_ms=50
        ),
    )
    control = replace(unlimited(), control=True)
    evidence = Evidence(
        solo={control.key: control.response},
        quotas_changed="producer_byte_rate of /greedy was 2000000 and is 1000000",
        expectations=(parse_expectation("entity(free).throttle.count == 0"),),
        warnings=("the load tester was the bottleneck",),
    )
    return result(judged, control, evidence=evidence)


def _document(of: LoadResult) -> Any:
    return json.loads(json_text(envelope(load_listing(of))))


@pytest.mark.parametrize("of", [result(greedy()), result(greedy(), unlimited(), interrupted=True), _rich()])
def test_documents_are_as_the_schema_says(of: LoadResult) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = _document(of)

    assert document["schema"] == SCHEMA["title"] == "kafka-quotas.load-test/3"
    jsonschema.validate(document, SCHEMA)


def test_the_schema_notices_what_is_missing_or_new() -> None:
    for change in ({"state": "fine"}, {"more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**_document(_rich()), **change}, SCHEMA)


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    run = _rich()
    (tmp_path / "run.json").write_text(json_text(envelope(load_listing(run))), encoding="utf-8")

    read = read_run(tmp_path)

    assert run_document(read) == run_document(run)
    assert read == run
    assert read_run(tmp_path / "run.json") == run


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not a run of a load test"),
        ("[]", "is not a run of a load test"),
        ('{"schema": "kafka-quotas.load-test/1"}', "is a kafka-quotas.load-test/1, not a"),
        ('{"schema": "kafka-quotas.load-test/3"}', "title is missing"),
    ],
)
def test_what_is_no_run_is_said_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")

    with pytest.raises(KafkaQuotasError, match=told) as raised:
        read_run(tmp_path)
    assert "\n" not in raised.value.message


def test_a_folder_without_a_run_is_a_mistake_of_the_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run of a load test"):
        read_run(tmp_path)
