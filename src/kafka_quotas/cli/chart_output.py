"""Where charts go: below a table on standard output, beside data on standard error, or into a file."""

import sys
from collections.abc import Sequence
from pathlib import Path

from kafka_quotas.cli.chart import Series, print_chart
from kafka_quotas.cli.output import Output
from kafka_quotas.cli.plot import save_plot


def show_chart(series: Sequence[Series], output: Output, *, title: str, chart: bool, plots: Sequence[Path]) -> None:
    """Draw the series as characters if `chart` says so, and into every file of `plots`.

    Raises:
        KafkaQuotasError: A file can't be written.
    """
    if chart:
        stream = sys.stdout if output in (Output.TABLE, Output.MARKDOWN) else sys.stderr
        fenced = output is Output.MARKDOWN
        stream.write("\n```\n" if fenced else "\n")
        print_chart(series, stream, title=title)
        stream.write("```\n" if fenced else "")
    for plot in plots:
        save_plot(series, plot, title=title)
        sys.stderr.write(f"drawn: {plot}\n")
