"""Sources of a stream: topics by name, and folders by the kind of files that their events are in."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.support.pipeline.events import events_folder

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.stream.source import LINE_COLUMNS, FolderSource, parse_source, parse_topic, read_stream


@pytest.mark.parametrize("text", ["kafka://", "kafka://host:9092", "kafka:///topic", "kafka://h:1/a/b"])
def test_a_topic_is_a_host_and_a_name(text: str) -> None:
    with pytest.raises(UsageError, match="not a topic"):
        parse_topic(text)
    with pytest.raises(UsageError):
        parse_source(text)


def test_a_folder_is_one_of_lines_unless_ingest_wrote_it(tmp_path: Path) -> None:
    assert parse_source(str(tmp_path)) == FolderSource(folder=tmp_path, is_delta=False)
    ingested = parse_source(str(events_folder(tmp_path / "ingested", [])))
    assert ingested == FolderSource(folder=tmp_path / "ingested" / "events", is_delta=True)
    with pytest.raises(UsageError, match="there is no folder") as caught:
        parse_source(str(tmp_path / "none"))
    assert "one that ingest writes" in str(caught.value.hint)


@pytest.mark.parametrize("kind", ["lines", "delta"])
def test_spark_gets_the_path_of_a_folder_as_it_stands(kind: str) -> None:
    """Hadoop reads `%20` in a path as a percent sign and two digits."""
    session = MagicMock()
    reader = session.readStream
    for method in ("format", "option"):
        getattr(reader, method).return_value = reader
    source = FolderSource(folder=Path("/a b"), is_delta=kind == "delta")
    read_stream(session, source, batch_size=1, has_places=False)
    loads = {"lines": reader.text, "delta": reader.load}
    loads[kind].assert_called_once_with("file:///a b")


@pytest.mark.parametrize(("has_places", "columns"), [(False, {"value"}), (True, set(LINE_COLUMNS))])
def test_spark_computes_places_of_lines_where_they_are_kept_alone(has_places: bool, columns: set[str]) -> None:
    session = MagicMock()
    reader = session.readStream
    for method in ("format", "option"):
        getattr(reader, method).return_value = reader
    topic = parse_source("kafka://h:1/events")
    for source, loaded in ((topic, reader.load), (FolderSource(folder=Path("/a"), is_delta=False), reader.text)):
        read_stream(session, source, batch_size=1, has_places=has_places)
        asked = loaded.return_value.selectExpr.call_args.args
        assert {each.split()[-1] for each in asked} == columns
