"""The options of `load-test produce` and `consume` beyond those that all load tests share."""

from typing import Annotated

import typer

from kafka_quotas.cli.load_options import LOAD_PANEL, RESULT_PANEL, TARGET_PANEL
from kafka_quotas.loadtest.workload import ClientKind

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
