"""The settings of a Spark session: the user's choices, and the configuration that follows from them."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.pipeline.tables.lake import hadoop_setting

DEFAULT_MASTER: Final = "local[*]"
_ENVIRONMENT_FOLDER: Final = "environment"
_PACKED: Final = (".tar.gz", ".tgz")
"""Suffixes of archives that Spark unpacks with the permissions of their files."""
_SHIPPED_PYTHON: Final = f"{_ENVIRONMENT_FOLDER}/bin/python"
_AWS_SDK: Final = ("software.amazon.awssdk:s3-transfer-manager:2.29.52", "software.amazon.awssdk:sts:2.29.52")
"""What `s3a:` needs of the AWS SDK, in the version that is tested."""
_DELTA_ARTIFACT: Final = "io.delta:delta-spark_"
_DELTA_OF_SPARK: Final = MappingProxyType({"4.0": "2.13:4.0.0", "4.1": "4.1_2.13:4.4.0", "4.2": "4.2_2.13:4.4.0"})
"""The artifact's ending and version by Spark's: a release of Delta Lake is built for some releases of Spark only."""
_ENDPOINT: Final = "AWS_ENDPOINT_URL"
_S3A_OF_VARIABLES: Final = MappingProxyType(
    {
        _ENDPOINT: "endpoint",
        "AWS_REGION": "endpoint.region",
        "AWS_ACCESS_KEY_ID": "access.key",
        "AWS_SECRET_ACCESS_KEY": "secret.key",
        "AWS_SESSION_TOKEN": "session.token",
    }
)
_LOOPBACK: Final = "127.0.0.1"
JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""The property for options of the driver's Java, after which the user's own come."""
_WIDE_REGIONS: Final = "-XX:G1HeapRegionSize=8m"
"""For rows of up to 64 Ki events: G1 looks for neighbouring free regions for each that is over half of one.

In heaps of up to 4 GB regions have 1 or 2 MB by default, and a sort fails for lack of neighbours, not of memory.
"""
_RARER_OPTIMISATION: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Calls after which Java optimises a method, ten times its own: a command ends before most of Spark's are worth it."""
_SHORT: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
"""For Java that ends within a minute: it optimises nothing, with room for what it compiles and for its classes."""
_FEW_ROWS: Final = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.databricks.delta.stats.skipping": "false",
    }
)
"""Properties for so few rows that planning and compiling a query takes longer than it."""


def submitted_master() -> str | None:
    """Return the master of the application of which `spark-submit` runs this process, None if it doesn't."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - the command's help must not load it

    SparkContext._ensure_initialized()  # noqa: SLF001 - without it the configuration is not that of the application
    return SparkConf().get("spark.master")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The settings of a session."""

    log_file: Path
    """Log file for Spark's output."""
    master: str = DEFAULT_MASTER
    """Spark's own text (`local[2]`, `spark://HOST:PORT`, `yarn`) or `sc://HOST:PORT` of a Connect server."""
    env_archive: Path | None = None
    """Packed environment for the executors."""
    packages: tuple[str, ...] = ()
    """Maven coordinates of jars to fetch; those of an artifact that is needed anyway take its place."""
    jars: tuple[str, ...] = ()
    """Jars that are there already: with any, none are fetched."""
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Spark's own properties, which override all derived ones."""
    is_short: bool = False
    """Whether Java ends before what it optimises is worth that."""

    def __post_init__(self) -> None:
        if self.env_archive is not None and not self.env_archive.is_file():
            raise UsageError(
                f"--env-archive: there is no file {self.env_archive}", hint="pack one with venv-pack or conda-pack"
            )
        if self.env_archive is not None and not self.env_archive.name.endswith(_PACKED):
            raise UsageError(
                f"--env-archive: {self.env_archive} is not a .tar.gz file",
                hint="other archives lose the permission to run its Python",
            )
        if self.is_local and self.env_archive is not None:
            raise UsageError("--env-archive is for clusters", hint="local workers run in this environment already")

    def with_packages(self, package: str, *needed: str) -> "SparkSettings":
        """Return the settings with a package and what it needs, unless the user names it in any version."""
        is_named = any(each.rpartition(":")[0] == package.rpartition(":")[0] for each in self.packages)
        return self if is_named else replace(self, packages=(*self.packages, package, *needed))

    def for_place(self, *urls: str) -> "SparkSettings":
        """Return the settings with the packages that Spark needs for places, as `lake_url` returns them.

        None are added if the user names class paths that have them.
        """
        is_on_path = any(name.endswith(".extraClassPath") for name in self.properties)
        found = None if is_on_path else _hadoop_version()
        if found is None or not any(url.startswith("s3:") for url in urls):
            return self
        return self.with_packages(f"org.apache.hadoop:hadoop-aws:{found}", *_AWS_SDK)

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process of this machine."""
        return self.master.startswith("local")

    @property
    def is_connect(self) -> bool:
        """Whether a Spark Connect server does the work."""
        return self.master.startswith("sc://")

    @property
    def is_on_loopback(self) -> bool:
        """Whether the session stays on this machine."""
        return self.is_local or f"//{_LOOPBACK}:" in self.master or "//localhost:" in self.master


def _hadoop_version() -> str | None:
    """Return the version of the Hadoop libraries that come with PySpark, None if they do not."""
    folder = _pyspark_folder()
    names = [] if folder is None else [path.stem for path in Path(folder, "jars").glob("hadoop-client-api-*.jar")]
    return names[0].removeprefix("hadoop-client-api-") if names else None


def _pyspark_folder() -> str | None:
    spec = find_spec("pyspark")
    return None if spec is None else next(iter(spec.submodule_search_locations or ()), None)


def spark_properties(settings: SparkSettings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return Spark's properties for a session other than Connect's."""
    properties = {
        **runtime_properties(settings),
        **object_store_properties(environment, _configured(settings, environment)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.executor.defaultJavaOptions": _WIDE_REGIONS,
    }
    if settings.is_local:  # which the user's extraJavaOptions come after
        properties[JAVA_OPTIONS] = _SHORT if settings.is_short else f"{_RARER_OPTIMISATION} {_WIDE_REGIONS}"
    if settings.is_on_loopback:
        properties |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    if settings.jars:
        properties["spark.jars"] = ",".join(settings.jars)
    else:
        properties["spark.jars.packages"] = ",".join(jar_packages(settings.packages))
        if set(_AWS_SDK) <= set(settings.packages):
            properties["spark.jars.excludes"] = "software.amazon.awssdk:bundle"  # 558 MB for each executor to fetch
    if settings.env_archive is not None:
        properties["spark.archives"] = shipped_environment(settings.env_archive)
    return properties | dict(settings.properties)


def object_store_properties(
    environment: Mapping[str, str], known: Callable[[str], str | None] = lambda _: None
) -> dict[str, str]:
    """Return the properties of `s3a:` that say what only variables of the cloud's own tools say.

    Executors on other machines don't have the variables. Spark keeps such properties out of its logs. `known` returns
    one of Hadoop's settings by name.
    """
    configured = object_store_variables(known)
    own = {
        f"fs.s3a.{key}": environment[variable]
        for variable, key in _S3A_OF_VARIABLES.items()
        if variable in environment and configured.get(variable) != environment[variable]
    }
    if endpoint := own.get("fs.s3a.endpoint"):  # a gateway of one's own, whose buckets are no host names
        own["fs.s3a.path.style.access"] = "true"
        own["fs.s3a.connection.ssl.enabled"] = str(endpoint.startswith("https")).lower()
    return {f"spark.hadoop.{name}": value for name, value in own.items()}


def object_store_variables(setting: Callable[[str], str | None]) -> dict[str, str]:
    """Return the variables of the cloud's own tools that say what Hadoop's settings say of `s3a:`.

    delta-rs, which commits changes of tables, reads nothing else. `setting` returns a setting by name, None or an empty
    text for one that is not set.
    """
    found = {name: value for name, key in _S3A_OF_VARIABLES.items() if (value := setting(f"fs.s3a.{key}"))}
    if endpoint := found.get(_ENDPOINT):
        scheme = "http" if setting("fs.s3a.connection.ssl.enabled") == "false" else "https"
        found[_ENDPOINT] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        found["AWS_ALLOW_HTTP"] = str(found[_ENDPOINT].startswith("http:")).lower()
    return found


def name_object_store(settings: SparkSettings, *urls: str) -> None:
    """Set the variables by which delta-rs finds the store of places in S3, from Spark's configuration.

    They are known before a session, and without one. Variables that are set stay. `urls` are those of `lake_url`.
    """
    if any(url.startswith("s3:") for url in urls):
        for name, value in object_store_variables(_configured(settings, os.environ)).items():
            os.environ.setdefault(name, value)


def _configured(settings: SparkSettings, environment: Mapping[str, str]) -> Callable[[str], str | None]:
    """Return a function for Hadoop's settings as a session would have them.

    The user's properties come first, then Spark's file, then Hadoop's.
    """
    defaults = _spark_defaults(environment)

    def setting(name: str) -> str | None:
        key = f"spark.hadoop.{name}"
        return settings.properties.get(key) or defaults.get(key) or hadoop_setting(name, environment)

    return setting


def _spark_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of `spark-defaults.conf`, none where the file can't be read."""
    folder = environment.get("SPARK_CONF_DIR") or f"{environment.get('SPARK_HOME') or _pyspark_folder()}/conf"
    with suppress(UsageError):
        found = read_properties(Path(folder, "spark-defaults.conf"))
        return {name: value.strip() for name, value in found.items()}
    return {}


def jar_packages(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the given Maven coordinates, and those of Delta Lake unless it is among them."""
    if any(each.startswith(_DELTA_ARTIFACT) for each in given):
        return given
    installed = version("pyspark")
    found = _DELTA_OF_SPARK.get(".".join(installed.split(".")[:2]))
    if found is None:
        raise UsageError(
            f"no release of Delta Lake is known for PySpark {installed}",
            hint=f"install PySpark {' or '.join(_DELTA_OF_SPARK)}, or name one: --spark-conf "
            f"spark.jars.packages={_DELTA_ARTIFACT}...",
        )
    return (*given, f"{_DELTA_ARTIFACT}{found}")


def connect_properties(settings: SparkSettings) -> dict[str, str]:
    """Return the properties to set in the existing session of a Connect server."""
    properties = runtime_properties(settings)
    if settings.env_archive is not None:
        properties["spark.sql.execution.pyspark.python"] = _SHIPPED_PYTHON
    return properties | dict(settings.properties)


def shipped_environment(archive: Path) -> str:
    """Return the archive and the folder where executors unpack it, in Spark's notation."""
    return f"{archive.absolute()}#{_ENVIRONMENT_FOLDER}"


def runtime_properties(settings: SparkSettings) -> dict[str, str]:
    """Return the properties that an existing session takes."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 2)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.databricks.delta.snapshotPartitions": "2",  # fifty by default, for a table of a few files
        "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 26),  # rows with pieces or whole files are large
        "spark.sql.parquet.columnarReaderBatchSize": "128",  # a row has up to 64 Ki events: 4,096 are in no cache
        "spark.sql.maxConcurrentOutputFileWriters": "32",  # else Java sorts rows by day, one by one, before it writes
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # else they are INT96, without statistics
        "spark.sql.parquet.compression.codec": "zstd",  # half the size of Spark's default at the same cost
        **(_FEW_ROWS if settings.is_short else {}),
    }


def worker_environment(settings: SparkSettings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that PySpark reads at its start.

    Workers on this machine run this very Python, since the one on the PATH may lack libraries. On a cluster the user's
    own PYSPARK_PYTHON counts, unless an environment is shipped.
    """
    python = sys.executable
    if settings.env_archive is not None:
        python = f"./{_SHIPPED_PYTHON}"
    elif not settings.is_local:
        python = environment.get("PYSPARK_PYTHON", python)
    variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return variables | ({"SPARK_LOCAL_IP": _LOOPBACK} if settings.is_on_loopback else {})
