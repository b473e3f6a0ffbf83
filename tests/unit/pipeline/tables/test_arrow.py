"""Tables of a job as folders of Parquet: complete ones, or those of an earlier run."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.tables.arrow import write_tables


def test_tables_take_the_place_of_earlier_ones(tmp_path: Path) -> None:
    for count in (3, 5):
        write_tables(tmp_path / "out", {"numbers": pa.table({"n": list(range(count))})})
    assert pq.read_table(tmp_path / "out" / "numbers").num_rows == 5
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["numbers"]
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaQuotasError, match="cannot write tables"):
        write_tables(tmp_path / "file", {"numbers": pa.table({"n": [1]})})


def test_tables_stay_where_new_ones_cannot_take_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tables(tmp_path, {"numbers": pa.table({"n": [1, 2, 3]})})
    rename = Path.rename

    def refusing(path: Path, target: Path) -> Path:
        if ".staging" in path.parent.name and target == tmp_path / "numbers":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refusing)
        with pytest.raises(KafkaQuotasError, match="No space left"):
            write_tables(tmp_path, {"numbers": pa.table({"n": [1]})})
    assert [each.name for each in tmp_path.iterdir()] == ["numbers"]
    assert pq.read_table(tmp_path / "numbers").num_rows == 3
