"""`kafka-quotas load-test merge`: the shards of one load test as one run, with its verdict."""

from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.framework.option_groups import Without
from kafka_quotas.cli.load_test.kept_runs import end_with_verdict
from kafka_quotas.cli.load_test.result_output import ResultOutput, print_verdict, raise_all
from kafka_quotas.cli.load_test.views.view import verdict_line
from kafka_quotas.loadtest.results.run_file import read_shard
from kafka_quotas.loadtest.verdict.merge import merge_shards

Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR", help="The folders that all shards wrote with --out, in any order.")
]


def merge(folders: Folders, *, output: Annotated[ResultOutput, Without("repeat")]) -> None:
    """Merge the shards of a load test into one run, and judge it as a whole.

    Histograms, samples and counts are added up exactly. The exit code is the verdict on the whole, which is void
    where a shard is void or ended early.
    """
    output.check()
    result = merge_shards([read_shard(folder) for folder in folders])
    failures = list(output.keep(result))
    print_verdict(verdict_line(result), output.output)
    raise_all(failures)
    end_with_verdict(result)
