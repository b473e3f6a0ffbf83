"""What a Spark session needs before it starts, and what it is told.

Nothing here starts one.
"""

import gc
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
from tests.support.brokers.java_process import free_port, java
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core import extras
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import find_java, install_extra
from kafka_quotas.pipeline.engine import job as engine_job
from kafka_quotas.pipeline.engine import spark_settings
from kafka_quotas.pipeline.engine.job import Engine, choose_engine, require_libraries
from kafka_quotas.pipeline.engine.spark_session import (
    keep_jars,
    known_jars,
    spark_errors,
    spark_session,
    with_known_jars,
    write_ivy_settings,
    write_package_archive,
)
from kafka_quotas.pipeline.engine.spark_settings import (
    JAVA_OPTIONS,
    SparkSettings,
    connect_properties,
    jar_packages,
    name_object_store,
    object_store_variables,
    spark_properties,
    worker_environment,
)
from kafka_quotas.pipeline.tables import schemas
from kafka_quotas.pipeline.tables.lake import Lake, lake_url
from kafka_quotas.pipeline.tables.packed_events import ROW_EVENTS
from kafka_quotas.pipeline.tables.schemas import ARRAYS, CHARGE_COLUMNS, TableSchema

LOG = Path("spark.log")


def java_that_says(folder: Path, text: str) -> dict[str, str]:
    """An environment whose Java answers so."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize("text", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS'])
def test_java_is_found_where_java_home_says(tmp_path: Path, text: str) -> None:
    assert find_java(java_that_says(tmp_path, text)) == tmp_path / "bin" / "java"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('openjdk version "11.0.2"', "17 or later, .* is 11"),
        ('java version "1.8.0_5"', "is 8"),
        ("hello", "no version"),
    ],
)
def test_a_java_that_spark_does_not_take_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KafkaQuotasError, match=message) as caught:
        find_java(java_that_says(tmp_path, text))
    assert "install Java 17" in str(caught.value.hint)


@pytest.mark.parametrize("environment", [{"PATH": "/nowhere"}, {"JAVA_HOME": "/nowhere"}])
def test_no_java_is_told_with_what_to_install(environment: dict[str, str]) -> None:
    with pytest.raises(KafkaQuotasError, match="Spark needs Java") as caught:
        find_java(environment)
    assert "apt install openjdk-17-jre-headless" in str(caught.value.hint)
    assert "--engine local needs none" in str(caught.value.hint)


def test_without_java_the_command_ends_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("[2026-11-21 12:00:00,000] INFO nothing\n")
    argv = ("pipeline", "ingest", str(log), "--broker-id", "1", "--timezone", "UTC", "--out", str(tmp_path / "d"))
    code, out, err = run_cli(
        *argv, "--format", "request-log", "--engine", "spark", environment={"JAVA_HOME": "/nowhere"}
    )
    assert (code, out) == (1, "")
    assert err.splitlines()[-2].startswith("error: Spark needs Java: JAVA_HOME=/nowhere")
    assert not list((tmp_path / "d").glob("ingest=*"))


def test_a_library_that_is_missing_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "pyarrow" else object())
    with pytest.raises(UsageError, match="needs pyarrow, not installed") as caught:
        require_libraries("pyarrow", "orjson")
    assert caught.value.hint == install_extra("spark")


@pytest.mark.skipif(java() is None, reason="Java is missing")
@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_is_not_there_is_told_at_once(tmp_path: Path, scheme: str) -> None:
    settings = SparkSettings(log_file=tmp_path / "log", master=f"{scheme}://127.0.0.1:{free_port()}")
    with pytest.raises(KafkaQuotasError, match=r"nothing answers at 127\.0\.0\.1"), spark_session(settings):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PySpark leaves its pipe to Java open
@pytest.mark.parametrize(
    ("says", "why", "hint"),
    [
        (
            'Exception in thread "main" java.lang.RuntimeException: [download failed: a#b;1!b.jar]',
            r"download failed: a#b;1!b\.jar",
            "spark.jars",
        ),
        (
            "Invalid maximum heap size: -Xmxlots",
            "Invalid maximum heap size: -Xmxlots",
            "spark.driver.memory takes a size",
        ),
    ],
)
def test_a_java_that_ends_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, why: str, hint: str
) -> None:
    log = tmp_path / "log"
    log.write_text('Exception in thread "main" java.lang.RuntimeException: of an earlier run\n', encoding="utf-8")
    java_that_says(tmp_path, f'openjdk version "17.0.1"\n{says}')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(KafkaQuotasError, match=rf"on local\[2\]: {why}$") as caught:  # noqa: SIM117
        with spark_session(SparkSettings(log_file=log, master="local[2]")):
            pass
    assert hint in str(caught.value.hint)
    del caught
    gc.collect()


def test_a_java_that_is_gone_is_one_line_and_hides_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = mock.Mock(side_effect=ConnectionRefusedError(111, "Connection refused"))
    monkeypatch.setattr("kafka_quotas.pipeline.engine.spark_session._start", lambda *_: mock.Mock(stop=gone, run=gone))
    settings = SparkSettings(log_file=tmp_path / "log", master="local[2]")
    with (
        pytest.raises(KafkaQuotasError, match=r"^Spark failed while reading: its Java ended$"),
        spark_session(settings) as session,
        spark_errors("reading", log_file=LOG),
    ):
        session.run()
    assert gone.call_count == 2


@pytest.mark.parametrize(
    ("asked", "events", "master", "expected", "why"),
    [
        (Engine.AUTO, 5, None, Engine.LOCAL, "about 5 events"),
        (Engine.AUTO, 5_000_001, None, Engine.SPARK, "more than 5,000,000"),
        (Engine.AUTO, 5, "spark://h:1", Engine.SPARK, "--master spark://h:1 was given"),
        (Engine.LOCAL, 10**12, None, Engine.LOCAL, "as requested"),
        (Engine.SPARK, 0, None, Engine.SPARK, "as requested"),
    ],
)
def test_the_engine_is_chosen_by_size_and_says_why(
    monkeypatch: pytest.MonkeyPatch, asked: Engine, events: int, master: str | None, expected: Engine, why: str
) -> None:
    monkeypatch.setattr(engine_job, "missing_for_spark", lambda: None)
    choice = choose_engine(asked, events=events, master=master)
    assert choice.engine is expected
    assert why in choice.reason


@pytest.mark.parametrize(("missing", "expected"), [(None, Engine.SPARK), ("Java", Engine.LOCAL)])
def test_remote_data_is_for_spark_where_that_is_there(
    monkeypatch: pytest.MonkeyPatch, missing: str | None, expected: Engine
) -> None:
    monkeypatch.setattr(engine_job, "missing_for_spark", lambda: missing)
    choice = choose_engine(Engine.AUTO, events=5, master=None, is_remote=True)
    assert choice.engine is expected
    assert choice.reason == "the data is remote" + (f", but there is no {missing} here" if missing else "")


def test_workers_run_this_python_here_and_the_shipped_one_elsewhere(tmp_path: Path) -> None:
    archive = tmp_path / "environment.tar.gz"
    archive.touch()
    theirs = {"PYSPARK_PYTHON": "/opt/python"}
    here = SparkSettings(log_file=LOG, master="local[2]")
    cluster = SparkSettings(log_file=LOG, master="yarn")
    shipped = SparkSettings(log_file=LOG, master="yarn", env_archive=archive)
    assert worker_environment(here, theirs)["PYSPARK_PYTHON"] == sys.executable
    assert worker_environment(cluster, theirs)["PYSPARK_PYTHON"] == "/opt/python"
    assert worker_environment(shipped, theirs)["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert spark_properties(shipped)["spark.archives"] == f"{archive}#environment"
    at_connect = connect_properties(replace(shipped, master="sc://127.0.0.1:15002"))
    assert at_connect["spark.sql.execution.pyspark.python"] == "environment/bin/python"
    assert "SPARK_LOCAL_IP" in worker_environment(here, {})
    assert "SPARK_LOCAL_IP" not in worker_environment(cluster, {})


def test_a_session_of_either_kind_lists_a_tables_files_in_few_tasks_and_packs_its_own_well() -> None:
    here = spark_properties(SparkSettings(log_file=LOG, master="local[2]"))
    at_connect = connect_properties(SparkSettings(log_file=LOG, master="sc://127.0.0.1:15002"))
    assert [each["spark.databricks.delta.snapshotPartitions"] for each in (here, at_connect)] == ["2", "2"]
    assert [each["spark.sql.parquet.compression.codec"] for each in (here, at_connect)] == ["zstd", "zstd"]


def test_java_optimises_later_where_it_ends_with_the_command() -> None:
    name = "spark.driver.defaultJavaOptions"
    here = spark_properties(SparkSettings(log_file=LOG, master="local[2]"))
    assert "-XX:Tier4InvocationThreshold=50000" in here[name]
    assert name not in spark_properties(SparkSettings(log_file=LOG, master="yarn"))


def test_half_a_region_of_java_holds_the_largest_row_of_any_job() -> None:
    columns = {*CHARGE_COLUMNS, "connection"} & {*ARRAYS}
    largest = 8 * len(columns) * ROW_EVENTS  # Spark's arrays have at most 8 bytes a value, and null bits
    here = spark_properties(SparkSettings(log_file=LOG, master="local[2]"))
    elsewhere = spark_properties(SparkSettings(log_file=LOG, master="yarn"))
    for options in (here["spark.driver.defaultJavaOptions"], elsewhere["spark.executor.defaultJavaOptions"]):
        found = re.search(r"-XX:G1HeapRegionSize=(\d+)m", options)
        assert found is not None
        assert int(found[1]) << 20 >= 2 * largest


def test_a_short_job_compiles_next_to_nothing() -> None:
    found = spark_properties(SparkSettings(log_file=LOG, master="local[2]", is_short=True), {})
    assert found["spark.driver.defaultJavaOptions"].startswith("-XX:TieredStopAtLevel=1 ")
    assert found["spark.sql.codegen.wholeStage"] == "false"


def test_a_later_session_starts_with_the_jars_of_the_first_and_the_classes_of_the_second(tmp_path: Path) -> None:
    java, jar, cache = tmp_path / "java", tmp_path / "delta.jar", {"XDG_CACHE_HOME": str(tmp_path)}
    java.touch()
    jar.touch()
    given = {"spark.jars.packages": "io.delta:delta:1", "spark.driver.extraClassPath": "own/*", JAVA_OPTIONS: "-Xss4m"}
    known = known_jars(given, java, cache)
    assert with_known_jars(given, known) == given
    keep_jars(known, f"file://{jar}")
    second = with_known_jars(given, known)
    assert second.keys() == {JAVA_OPTIONS, "spark.driver.extraClassPath"}
    assert second["spark.driver.extraClassPath"] == f"own/*:{jar}"
    usual, _, archive = second[JAVA_OPTIONS].strip('"').partition(' "-XX:ArchiveClassesAtExit=')
    assert usual == "-Xss4m"
    Path(archive).write_bytes(bytes(8))  # Java was killed while it wrote it
    assert with_known_jars(given, known) == second
    Path(archive).write_bytes(b"\xa8\xba")
    assert with_known_jars(given, known)[JAVA_OPTIONS] == f'{usual} "-XX:SharedArchiveFile={archive}"'
    keep_jars(known, f"file://{jar}")
    assert with_known_jars(given, known) == second
    assert known_jars({**given, "spark.jars.packages": "io.delta:delta:2"}, java, cache) != known
    jar.unlink()
    assert with_known_jars(given, known) == given


def test_the_users_properties_win(tmp_path: Path) -> None:
    given = {"spark.sql.shuffle.partitions": "7", "spark.driver.memory": "9g"}
    found = spark_properties(SparkSettings(log_file=LOG, properties=given))
    assert {name: found[name] for name in given} == given
    assert found["spark.sql.session.timeZone"] == "UTC"
    (tmp_path / "environment.zip").touch()
    with pytest.raises(UsageError, match=r"is not a \.tar\.gz file"):
        SparkSettings(log_file=LOG, master="yarn", env_archive=tmp_path / "environment.zip")
    with pytest.raises(UsageError, match="no file"):
        SparkSettings(log_file=LOG, master="yarn", env_archive=tmp_path / "none")


def test_the_package_ships_every_module_of_its_own(tmp_path: Path) -> None:
    names = zipfile.ZipFile(write_package_archive(tmp_path)).namelist()
    assert {"kafka_quotas/__init__.py", "kafka_quotas/pipeline/ingest/ingested_tables.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)


def test_jars_follow_pyspark_and_can_be_named() -> None:
    kafka, delta = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0", "io.delta:delta-spark_2.13:4.0.0"
    other = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1"
    for given, packages in (((), (kafka,)), (("a:b:1",), ("a:b:1", kafka)), ((other,), (other,))):
        assert SparkSettings(log_file=LOG, packages=given).with_packages(kafka).packages == packages
    assert jar_packages(()) == (delta,)
    newer = "io.delta:delta-spark_4.0_2.13:4.4.0"
    assert jar_packages((newer,)) == (newer,)
    there = spark_properties(SparkSettings(log_file=LOG, jars=("delta.jar", "storage.jar")))
    assert there["spark.jars"] == "delta.jar,storage.jar"
    assert "spark.jars.packages" not in there


def test_delta_lake_is_of_a_release_for_the_installed_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, delta in (("4.0.5", "2.13:4.0.0"), ("4.1.4", "4.1_2.13:4.4.0"), ("4.2.1", "4.2_2.13:4.4.0")):
        monkeypatch.setattr(spark_settings, "version", lambda _, installed=installed: installed)
        assert jar_packages(("a:b:1",)) == ("a:b:1", f"io.delta:delta-spark_{delta}")
    monkeypatch.setattr(spark_settings, "version", lambda _: "4.3.0")
    with pytest.raises(UsageError, match=r"known for PySpark 4\.3\.0") as caught:
        jar_packages(())
    assert "install PySpark 4.0 or 4.1 or 4.2" in str(caught.value.hint)
    named = "io.delta:delta-spark_4.3_2.13:4.5.0"
    assert jar_packages((named,)) == (named,)


def test_spark_knows_the_object_store_that_the_variables_name() -> None:
    variables = {"AWS_ENDPOINT_URL": "http://127.0.0.1:7070", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
    found = spark_properties(SparkSettings(log_file=LOG), variables)
    own = {name.removeprefix("spark.hadoop.fs.s3a."): text for name, text in found.items() if "s3a" in name}
    assert own == {
        "endpoint": "http://127.0.0.1:7070",
        "access.key": "a",
        "secret.key": "s",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    assert not any("s3a" in name for name in spark_properties(SparkSettings(log_file=LOG), {}))


def test_what_spark_knows_of_the_object_store_becomes_variables() -> None:
    known = {"endpoint": "127.0.0.1:7070", "connection.ssl.enabled": "false", "access.key": "a", "secret.key": "s"}
    expected = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:7070",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    settings = {f"fs.s3a.{name}": value for name, value in known.items()}
    assert object_store_variables(settings.get) == expected
    assert object_store_variables({**settings, "fs.s3a.endpoint": "https://store"}.get)["AWS_ALLOW_HTTP"] == "false"
    assert object_store_variables({"fs.s3a.endpoint": ""}.get) == {}


def test_the_store_of_a_place_is_known_from_sparks_configuration_before_a_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.hadoop.fs.s3a.access.key  a key\nspark.hadoop.fs.s3a.secret.key=file\nspark.ui.enabled true\n"
    )
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.s3a.endpoint</name><value>http://10.0.0.7:9000</value></property>"
        "<property><name>fs.s3a.secret.key</name><value>hadoop</value></property></configuration>"
    )
    monkeypatch.setattr(os, "environ", {"SPARK_CONF_DIR": str(tmp_path), "AWS_REGION": "here"})
    given = {"spark.hadoop.fs.s3a.secret.key": "given", "spark.hadoop.fs.s3a.endpoint.region": "there"}
    settings = SparkSettings(log_file=LOG, properties=given)
    name_object_store(settings, "/data", "hdfs://host/data")
    assert "AWS_ACCESS_KEY_ID" not in os.environ
    name_object_store(settings, "/data", "s3://bucket/data")
    assert {name: text for name, text in os.environ.items() if name != "SPARK_CONF_DIR"} == {
        "AWS_ENDPOINT_URL": "http://10.0.0.7:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a key",
        "AWS_SECRET_ACCESS_KEY": "given",
        "AWS_REGION": "here",
    }
    own = {name for name in spark_properties(settings, os.environ) if "s3a" in name}
    assert own == set(given)  # Spark reads the rest where we did


def test_a_place_in_s3_brings_the_package_of_the_hadoop_that_pyspark_has() -> None:
    settings, package = SparkSettings(log_file=LOG), "org.apache.hadoop:hadoop-aws"
    there = settings.for_place("s3://bucket/traffic")
    assert there.packages[0] == f"{package}:3.4.1"
    assert spark_properties(there)["spark.jars.excludes"] == "software.amazon.awssdk:bundle"  # 558 MB
    assert settings.for_place("/data").packages == settings.for_place("hdfs://host/data").packages == ()
    assert settings.for_place("/data", "s3://logs/1/a.log").packages == there.packages
    given = SparkSettings(log_file=LOG, packages=(f"{package}:3.4.2",))
    on_path = SparkSettings(log_file=LOG, properties={"spark.executor.extraClassPath": "/opt/hadoop-aws/*"})
    assert [each.for_place("s3://bucket/traffic") for each in (given, on_path)] == [given, on_path]
    assert "spark.jars.excludes" not in spark_properties(given)


@pytest.mark.parametrize("name", ["data [a] 5%", "a^b", "a|b", "a\\b", "50%20"])
def test_a_path_that_delta_rs_cannot_take_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can hold no Delta tables"):
        lake_url(str(tmp_path / name))
    assert lake_url(f"{tmp_path}/100% {{a}} #1") == f"{tmp_path}/100% {{a}} #1"


def test_ivy_asks_central_alone_or_the_repository_that_spark_is_told(tmp_path: Path) -> None:
    for environment, root in (
        ({}, "https://repo1.maven.org/maven2/"),
        ({"DEFAULT_ARTIFACT_REPOSITORY": "https://mirror/a&b"}, "https://mirror/a&b"),
    ):
        resolvers = ET.parse(write_ivy_settings(tmp_path, environment)).getroot().findall("resolvers/*")
        assert [each.get("root") for each in resolvers] == [root]


def test_every_table_has_one_schema_for_arrow_and_for_spark() -> None:
    tables = [each for each in vars(schemas).values() if isinstance(each, TableSchema)]
    assert len(tables) > 10
    for table in tables:
        arrow, spark = table.arrow_schema(), table.spark_schema()
        assert arrow.names == spark.names == list(table.column_names)
        assert [field.nullable for field in arrow] == [field.nullable for field in spark]
        assert len(set(arrow.names)) == len(arrow.names)


def test_a_folder_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no ingested data"):
        Lake(url=str(tmp_path)).table(schemas.PACKED_EVENTS)


def test_help_of_the_jobs_loads_no_heavy_library() -> None:
    heavy = ["pyspark", "pyarrow", "numba", "numpy", "pandas", "duckdb", "deltalake", "orjson", "rich"]
    script = (
        "import sys\nfrom kafka_quotas.cli.main import main\n"
        "codes = [main(['pipeline', job, '--help']) for job in ('ingest', 'stream')]\n"
        f"found = [name for name in {heavy!r} if name in sys.modules]\n"
        "sys.exit(f'{codes} {found}' if any(codes) or found else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
