"""Places of tables: hosts that Hadoop's configuration knows, and schemes that nobody does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.pipeline.tables.lake import ConflictError, Lake, hint_of, lake_errors, lake_url
from kafka_quotas.pipeline.tables.schemas import EVENTS, PACKED_EVENTS

_CORE_SITE = "<configuration><property><name>fs.defaultFS</name><value>{}</value></property></configuration>"


@pytest.fixture
def core_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says which file system is the default."""
    for name in ("YARN_CONF_DIR", "SPARK_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return tmp_path / "core-site.xml"


def test_a_url_without_a_host_is_in_the_default_file_system(core_site: Path) -> None:
    core_site.write_text(_CORE_SITE.format(" hdfs://namenode:8020/ "), encoding="utf-8")
    assert lake_url("hdfs:///lake/") == lake_url("hdfs:/lake") == "hdfs://namenode:8020/lake"
    assert lake_url("hdfs://other:9000/lake") == "hdfs://other:9000/lake"
    with pytest.raises(UsageError, match="viewfs:///lake names no bucket or host"):
        lake_url("viewfs:///lake")


@pytest.mark.parametrize("text", [None, "no XML", "<configuration/>", _CORE_SITE.format("file:///")])
def test_a_url_without_a_host_is_refused_where_there_is_no_default(core_site: Path, text: str | None) -> None:
    if text is not None:
        core_site.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"hdfs:///lake names no bucket or host, .*HADOOP_CONF_DIR") as caught:
        lake_url("hdfs:///lake")
    assert "hdfs://host:8020/traffic" in (caught.value.hint or "")


def test_messages_name_a_place_as_the_user_does(tmp_path: Path) -> None:
    lake = Lake.of("s3a://bucket/lake/")
    assert (lake.shown(), lake.shown(EVENTS), lake.place(EVENTS)) == (
        "s3a://bucket/lake",
        "s3a://bucket/lake/events",
        "s3://bucket/lake/events",
    )
    assert lake == Lake(url="s3://bucket/lake")
    assert Lake.of(f"file:{tmp_path}").shown() == str(tmp_path)


@pytest.mark.parametrize(("given", "found"), [({}, "error"), ({"RUST_LOG": "debug"}, "debug")])
def test_libraries_in_rust_log_no_warnings_unless_asked(given: dict[str, str], found: str) -> None:
    script = "import os, kafka_quotas.pipeline.tables.lake\nprint(os.environ['RUST_LOG'])"
    plain = {name: value for name, value in os.environ.items() if name != "RUST_LOG"}
    told = subprocess.check_output([sys.executable, "-c", script], env=plain | given, text=True, timeout=300)
    assert told.strip() == found


def test_several_slashes_are_one() -> None:
    assert lake_url("s3a://bucket//logs///{broker_id}/*//") == "s3://bucket/logs/{broker_id}/*"


def test_a_table_of_a_newer_delta_lake_is_said_to_be_one(tmp_path: Path) -> None:
    lake = Lake(url=str(tmp_path))
    lake.create()
    log = tmp_path / "events" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"minReaderVersion":1', '"minReaderVersion":99'))
    with pytest.raises(KafkaQuotasError, match="Unsupported minimum reader version 99") as caught:
        lake.table(EVENTS)
    assert "a newer Delta Lake" in (caught.value.hint or "")


def test_a_cause_is_a_sentence_not_the_value_that_a_library_shows_after_it() -> None:
    layers = (
        "\x1b[31m↳\x1b[0m data transfer error\n ↳ All DataNodes failed\n  ↳ [DatanodeInfoProto { id\n   ↳ Some(0) }]"
    )
    with (
        pytest.raises(KafkaQuotasError, match=r"^reading failed: All DataNodes failed$") as caught,
        lake_errors("reading"),
    ):
        raise OSError(f"Kernel error\n{layers}")
    assert (caught.value.hint or "").startswith("do the DataNodes run")


def test_what_helps_is_known_by_words_of_an_error() -> None:
    assert "spark.local.dir" in (hint_of("java.io.IOException: No space left on device") or "")
    assert "a Connect server" in (hint_of("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found") or "")
    assert hint_of("anything else") is None


def test_an_unknown_scheme_is_no_folder_without_data() -> None:
    lake = Lake(url=lake_url("hdfz://host/lake"))
    for use in (lake.create, lambda: lake.table(EVENTS)):
        with pytest.raises(UsageError, match="the scheme of the URL is unknown") as caught:
            use()
        assert "s3a:, hdfs:" in (caught.value.hint or "")


def test_a_commit_after_ones_own_is_refused_if_others_came_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the second removes was looked for before theirs, who may have removed it as well."""
    lake = Lake(url=str(tmp_path / "data"))
    lake.create()
    begin = DeltaTable.create_write_transaction

    def overtaken(self: DeltaTable, *arguments: object, **named: object) -> None:
        begin(self, *arguments, **named)  # type: ignore[arg-type]
        with monkeypatch.context() as alone:
            alone.setattr(DeltaTable, "create_write_transaction", begin)
            lake.commit(PACKED_EVENTS, lake.table(PACKED_EVENTS), [])

    opened = lake.table(PACKED_EVENTS)
    with monkeypatch.context() as other:
        other.setattr(DeltaTable, "create_write_transaction", overtaken)
        assert (lake.commit(PACKED_EVENTS, opened, []), opened.version()) == (1, 1)
    with pytest.raises(ConflictError):
        lake.commit(PACKED_EVENTS, opened, [])
    assert lake.table(PACKED_EVENTS).version() == 2
