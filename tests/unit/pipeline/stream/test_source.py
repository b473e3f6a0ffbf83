"""Sources of a stream: topics by name, and folders by the kind of files that their events are in."""

from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.pipeline.events import events_folder, events_table

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.stream.source import FolderSource, parse_source, parse_topic, read_stream


@pytest.mark.parametrize("text", ["kafka://", "kafka://host:9092", "kafka:///topic", "kafka://h:1/a/b"])
def test_a_topic_is_a_host_and_a_name(text: str) -> None:
    with pytest.raises(UsageError, match="not a topic"):
        parse_topic(text)
    with pytest.raises(UsageError):
        parse_source(text)


def is_parquet(folder: Path) -> bool:
    source = parse_source(str(folder))
    assert isinstance(source, FolderSource)
    return source.is_parquet


def test_files_without_events_do_not_decide_how_a_folder_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "figures.parquet")
    (tmp_path / "half.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "_hidden").mkdir()
    pq.write_table(events_table([{}]), tmp_path / "_hidden" / "part-0.parquet")
    assert not is_parquet(tmp_path), "the daemon's log may follow"
    (tmp_path / "events.jsonl").write_text("{}\n")
    assert not is_parquet(tmp_path)


def test_a_folder_of_events_in_parquet_is_read_as_such(tmp_path: Path) -> None:
    pq.write_table(events_table([{}]), tmp_path / "part-0.parquet")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "figures.parquet")
    assert is_parquet(tmp_path)
    ingested = parse_source(str(events_folder(tmp_path / "ingested", [])))
    assert ingested == FolderSource(folder=tmp_path / "ingested" / "events", is_parquet=True, is_delta=True)


def test_a_folder_with_both_kinds_of_events_is_refused(tmp_path: Path) -> None:
    pq.write_table(events_table([{}]), tmp_path / "part-0.parquet")
    (tmp_path / "events.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"also \.jsonl files"):
        parse_source(str(tmp_path))


@pytest.mark.parametrize("kind", ["lines", "parquet", "delta"])
def test_spark_gets_the_path_of_a_folder_as_it_stands(kind: str) -> None:
    """Hadoop reads `%20` in a path as a percent sign and two digits."""
    session = MagicMock()
    reader = session.readStream
    for method in ("format", "option", "schema"):
        getattr(reader, method).return_value = reader
    source = FolderSource(folder=Path("/a b"), is_parquet=kind != "lines", is_delta=kind == "delta")
    read_stream(session, source, batch_size=1)
    loads = {"lines": reader.text, "parquet": reader.parquet, "delta": reader.load}
    loads[kind].assert_called_once_with("file:///a b")
