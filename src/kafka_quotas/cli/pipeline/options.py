"""The options of the pipeline's jobs, and the session or job that they describe."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.core.errors import UsageError
from kafka_quotas.pipeline.buckets.default_scope import DefaultScope
from kafka_quotas.pipeline.engine.choice import Engine
from kafka_quotas.pipeline.engine.runner import EventsRequest
from kafka_quotas.pipeline.engine.spark_settings import DEFAULT_MASTER, SparkSettings

SPARK_PANEL = "Spark"

Data = Annotated[Path, typer.Argument(metavar="DATA", help="The folder that ingest wrote.")]

EngineName = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="local: this machine, without Spark; spark; auto: local up to about 100 million events, else Spark.",
        case_sensitive=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help=f"Spark's master: {DEFAULT_MASTER} (the default), spark://HOST:PORT, yarn, k8s://URL, or sc://HOST:PORT "
        "of a Spark Connect server. Naming one chooses Spark.",
        rich_help_panel=SPARK_PANEL,
    ),
]
EnvArchive = Annotated[
    Path | None,
    typer.Option(
        "--env-archive",
        metavar="FILE",
        help="A packed Python environment (venv-pack, conda-pack) for executors that lack the libraries.",
        rich_help_panel=SPARK_PANEL,
    ),
]
DriverMemory = Annotated[
    str,
    typer.Option(
        "--driver-memory", metavar="SIZE", help="Spark's driver memory, for example 4g.", rich_help_panel=SPARK_PANEL
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf", metavar="KEY=VALUE", help="A property of Spark; may be repeated.", rich_help_panel=SPARK_PANEL
    ),
]
SparkLog = Annotated[
    Path | None,
    typer.Option(
        "--spark-log",
        metavar="FILE",
        help="Where Spark's own messages go; by default a file in your folder for logs.",
        rich_help_panel=SPARK_PANEL,
    ),
]


def spark_settings(
    *,
    master: str | None,
    env_archive: Path | None,
    driver_memory: str,
    conf: list[str] | None,
    log: Path | None,
    packages: tuple[str, ...] = (),
) -> SparkSettings:
    """Return the session that the options describe.

    Raises:
        UsageError: A property is not KEY=VALUE.
    """
    return SparkSettings(
        log_file=log or _default_log(),
        master=master or DEFAULT_MASTER,
        driver_memory=driver_memory,
        env_archive=env_archive,
        packages=packages,
        properties=dict(_property(pair) for pair in conf or ()),
    )


def events_request(
    data: Path,
    engine: Engine,
    *,
    master: str | None,
    env_archive: Path | None,
    driver_memory: str,
    conf: list[str] | None,
    log: Path | None,
) -> EventsRequest:
    """Return the events and the engine that the options name.

    Raises:
        UsageError: A property is not KEY=VALUE.
    """
    spark = spark_settings(master=master, env_archive=env_archive, driver_memory=driver_memory, conf=conf, log=log)
    return EventsRequest(data=data, spark=spark, engine=engine, master=master)


def _property(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise UsageError(f"--spark-conf {pair!r} is no KEY=VALUE", hint="--spark-conf spark.executor.memory=4g")
    return key, value


def _default_log() -> Path:
    from platformdirs import user_log_path  # noqa: PLC0415 - only jobs without a chosen log pay for it

    return user_log_path("kafka-quotas") / "spark.log"


TOLERANCE_PANEL = "What is tolerated"

DefaultOf = Annotated[
    DefaultScope,
    typer.Option("--default-of", help="Whose default: of each user, each client-id, or each pair of both."),
]
ClusterName = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="Whose traffic counts, where the events are of several clusters."),
]
CapacityFile = Annotated[
    Path | None,
    typer.Option(
        "--capacity",
        metavar="FILE",
        help="What brokers can take, in the format of Cruise Control's capacity file; quotas are summed against it.",
    ),
]
ClientsShare = Annotated[
    float,
    typer.Option(
        "--clients-share",
        metavar="SHARE",
        help="Which share of the clients may need more than the default, 0 to 1; they get quotas of their own.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
TimeShare = Annotated[
    float,
    typer.Option(
        "--time-share",
        metavar="SHARE",
        help="For which share of its active time a client may be held back, 0 to 1.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
Headroom = Annotated[
    float,
    typer.Option(
        "--headroom",
        metavar="FACTOR",
        help="By which factor a quota of a client's own exceeds what it needed.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
CapacityShare = Annotated[
    float,
    typer.Option(
        "--capacity-share",
        metavar="SHARE",
        help="Which share of a broker's capacity all clients together may ask for, 0 to 1.",
        rich_help_panel=TOLERANCE_PANEL,
    ),
]
