"""The options that all load tests share, and those of `load-test produce` and `consume`."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.completion.values import complete_stores
from kafka_quotas.cli.options.windows import WINDOW_PANEL
from kafka_quotas.loadtest.plan.workload import ClientKind

TARGET_PANEL = "Target"
LOAD_PANEL = "Load"
RESULT_PANEL = "Result"

Target = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="The cluster, or the daemon in front of it; several brokers are separated by commas.",
        rich_help_panel=TARGET_PANEL,
    ),
]
Embedded = Annotated[
    bool,
    typer.Option(
        "--embedded",
        help="A cluster inside this process. It keeps no quotas, so it shows what the clients can do.",
        rich_help_panel=TARGET_PANEL,
    ),
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="The topic, which must exist.", rich_help_panel=TARGET_PANEL)
]
Property = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A client property by librdkafka's name; may be repeated, and wins over the tool's own.",
        rich_help_panel=TARGET_PANEL,
    ),
]
PropertyFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A file of such properties; -X wins over it.",
        rich_help_panel=TARGET_PANEL,
    ),
]
Passwords = Annotated[
    Path | None,
    typer.Option(
        "--passwords",
        metavar="FILE",
        help="SASL passwords, a line USER=PASSWORD for each user.",
        rich_help_panel=TARGET_PANEL,
    ),
]
EntityNames = Annotated[
    list[str] | None,
    typer.Option(
        "--entity",
        metavar="[USER]/CLIENT-ID",
        help="A client of the run; may be repeated. Without it there is one, /load-test.",
        rich_help_panel=LOAD_PANEL,
    ),
]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="RATE",
        help="What a client offers: max (the default), 5MB/s, 200rec/s or 2x-quota; once for all clients, or once for "
        "each in the order of --entity.",
        rich_help_panel=LOAD_PANEL,
    ),
]
Quotas = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="RATE",
        help="The quota to judge by, per broker: 2MB/s or unlimited; once for all or once for each. Without it the "
        "quotas come from --store, where that is given.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Duration = Annotated[
    str, typer.Option("--duration", metavar="TIME", help="How long to measure: 60s, 2min.", rich_help_panel=LOAD_PANEL)
]
Warmup = Annotated[
    str | None,
    typer.Option(
        "--warmup",
        metavar="TIME",
        help="How long before that, not judged. Default: one quota window.",
        rich_help_panel=LOAD_PANEL,
    ),
]
RecordSize = Annotated[
    str, typer.Option("--record-size", metavar="SIZE", help="Bytes in a record: 100, 1KiB.", rich_help_panel=LOAD_PANEL)
]
Acks = Annotated[
    str, typer.Option("--acks", metavar="0|1|all", help="Who confirms a record.", rich_help_panel=LOAD_PANEL)
]
Brokers = Annotated[
    int | None,
    typer.Option(
        "--brokers",
        metavar="N",
        min=1,
        help="How many brokers keep the quota, each for itself. Default: those that lead the topic.",
        rich_help_panel=RESULT_PANEL,
    ),
]
BrokerWindows = Annotated[
    bool,
    typer.Option(
        "--broker-windows",
        help="Read the quota window from the brokers of --bootstrap-server, with --command-config; the options above "
        "win. A daemon in front of them may have been given another.",
        rich_help_panel=WINDOW_PANEL,
    ),
]
Prometheus = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Read the brokers' own metrics beside the run, every 5 s: an exporter of a broker (with a path, as "
        "http://BROKER:7071/metrics) or a Prometheus server (without one). May be repeated.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Plot = Annotated[
    list[Path] | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help="Draw the run into FILE, .png or .svg; may be repeated.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Keep run.json, report.html, samples.parquet and .hgrm files in DIR, which is made if need be.",
        rich_help_panel=RESULT_PANEL,
    ),
]
QuotaStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Take the quotas to judge by from this store, as they resolve for each client. Without it from the one "
        "that the variable KAFKA_QUOTAS_STORE or the context in use names; where there is none, --quota alone counts.",
        rich_help_panel=RESULT_PANEL,
        autocompletion=complete_stores,
    ),
]


ClientOption = Annotated[
    ClientKind,
    typer.Option(
        "--client",
        help="Which library speaks: librdkafka goes on when throttled, kafka-python keeps still, raw does what "
        "--honor-throttle says and costs least, so that there can be 1,000.",
        rich_help_panel=LOAD_PANEL,
    ),
]
Batch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="SIZE",
        help="Bytes in one request at most: 16KiB, 1MB. Default: a tenth of a second's quota, 16 KiB to 1 MB.",
        rich_help_panel=LOAD_PANEL,
    ),
]
Compression = Annotated[
    str,
    typer.Option(
        "--compression",
        metavar="none|gzip|snappy|lz4|zstd",
        help="How batches are compressed. A quota counts what goes over the wire.",
        rich_help_panel=LOAD_PANEL,
    ),
]
SetQuota = Annotated[
    list[str] | None,
    typer.Option(
        "--set-quota",
        metavar="RATE",
        help="Set this quota on the clients for the time of the run, judge by it, and put back what was there before: "
        "2MB/s; once for all or once for each. A client without a user has it by its client-id.",
        rich_help_panel=TARGET_PANEL,
    ),
]
Control = Annotated[
    str | None,
    typer.Option(
        "--control",
        metavar="[USER]/CLIENT-ID",
        help="The client, one of --entity, that the others must not harm. It runs alone first, and its p99 beside the "
        "others is held against that.",
        rich_help_panel=RESULT_PANEL,
    ),
]
ReadBack = Annotated[
    bool,
    typer.Option(
        "--read-back/--no-read-back",
        help="Read what was produced back from the topic, and count what was lost or came twice.",
        rich_help_panel=RESULT_PANEL,
    ),
]
