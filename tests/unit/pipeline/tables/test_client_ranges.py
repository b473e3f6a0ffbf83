"""The rows of clients, of which each ingest writes its own."""

import pyarrow as pa
import pytest
from tests.support.pipeline.events import BASE_MS, events_table

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.ingest.ingested_tables import clients_of
from kafka_quotas.pipeline.tables.client_ranges import merged_clients

ROW = {
    "client": 7,
    "cluster": "a",
    "broker_id": 1,
    "user": "alice",
    "client_id": "x",
    "events": 2,
    "first_ms": 5,
    "last_ms": 9,
}


def test_a_client_of_two_ingests_is_one() -> None:
    rows = pa.Table.from_pylist([ROW, {**ROW, "client": 3}, {**ROW, "events": 4, "first_ms": 1, "last_ms": 6}])
    found = merged_clients(rows).to_pylist()
    assert [row["client"] for row in found] == [3, 7]
    assert (found[1]["events_sum"], found[1]["first_ms_min"], found[1]["last_ms_max"]) == (6, 1, 9)


def test_two_clients_of_different_ingests_that_have_one_number_are_refused() -> None:
    rows = pa.Table.from_pylist([ROW, {**ROW, "client": 3}, {**ROW, "client_id": "y"}])
    with pytest.raises(KafkaQuotasError, match=r"one number.*'client_id': '[xy]'.*'client_id': '[xy]'"):
        merged_clients(rows)


def test_two_clients_of_one_ingest_that_have_one_number_are_refused() -> None:
    events = events_table([{"ts_ms": BASE_MS, "client_id": name} for name in ("x", "x", "y")])
    numbers = events.schema.get_field_index("client")
    assert clients_of(events.slice(0, 2)).num_rows == 1
    with pytest.raises(KafkaQuotasError, match=r"one number.*'client_id': 'x'.*'client_id': 'y'"):
        clients_of(events.set_column(numbers, "client", pa.array([7, 7, 7])))
