"""The results of a scenario: each run as a load test, and what the probes measured."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from kafka_quotas.cli.load_test.result_output import ResultOutput, make_folder
from kafka_quotas.cli.output.render import write
from kafka_quotas.cli.output.values import duration_text
from kafka_quotas.cli.output.view import Output
from kafka_quotas.commands.load_test.order import ScenarioResult
from kafka_quotas.loadtest.result.result import LoadResult, ProbeResult
from kafka_quotas.loadtest.scenario.model import Variant


def keep_scenario(result: ScenarioResult, keeping: ResultOutput) -> None:
    """Print and keep every run of a scenario.

    For machine-readable forms only the run with quotas is printed. The run without quotas has a folder of its own
    inside that of the others.
    """
    for run in result.runs:
        is_judged = run.variant is Variant.WITH_QUOTAS
        if keeping.output is Output.TABLE or is_judged:
            folder = keeping.folder if is_judged or keeping.folder is None else keeping.folder / run.variant.value
            if folder is not None:
                make_folder(folder)
            replace(keeping, folder=folder, plots=keeping.plots if is_judged else ()).keep(run.result)
    if keeping.output is Output.TABLE:
        for run in result.runs:
            if run.result.probes:
                write(f"{run.variant.value}: {told_probes(run.result)}", sys.stdout)
    if result.scale != 1:
        write(f"note: run at a scale of {result.scale:g}; --scale 1 is the whole scenario", sys.stderr)
    for leftover in result.leftovers:
        write(f"warning: {leftover}", sys.stderr)


def told_probes(result: LoadResult) -> str:
    """Return how long new topics took to be visible, in one line."""
    waits = sorted(probe.wait_ms for probe in result.probes if probe.wait_ms is not None)
    count = len(result.probes)
    if not waits:
        return f"none of {count} later topics became visible in time: {_errors(result.probes)}"
    unseen = f", {count - len(waits)} never in time" if len(waits) < count else ""
    middle, longest = waits[len(waits) // 2], waits[-1]
    return (
        f"a later topic took {duration_text(middle * 1000)} to be visible (median of {count}), "
        f"{duration_text(longest * 1000)} at most{unseen}"
    )


def _errors(probes: Sequence[ProbeResult]) -> str:
    return "; ".join(sorted({probe.error for probe in probes if probe.error}))
