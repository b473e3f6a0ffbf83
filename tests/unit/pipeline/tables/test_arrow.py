"""Tables of a job in a folder."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.tables.arrow import write_tables


def test_a_second_run_replaces_the_rows_of_the_first_and_a_reader_keeps_its_own(tmp_path: Path) -> None:
    write_tables(str(tmp_path / "out"), {"numbers": pa.table({"n": [1, 2, 3]})})
    reader = DeltaTable(tmp_path / "out" / "numbers")
    write_tables(str(tmp_path / "out"), {"numbers": pa.table({"n": [4], "name": ["x"]})})
    assert reader.to_pyarrow_table().to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert DeltaTable(tmp_path / "out" / "numbers").to_pyarrow_table().to_pylist() == [{"n": 4, "name": "x"}]


def test_a_place_that_takes_no_table_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KafkaQuotasError, match=r"writing the table numbers to .*file failed") as caught:
        write_tables(str(tmp_path / "file"), {"numbers": pa.table({"n": [1]})})
    assert "\n" not in caught.value.message
