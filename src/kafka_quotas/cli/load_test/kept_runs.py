"""`kafka-quotas load-test report`, `compare`, `merge` and `restore`: runs that were kept, and what they left behind."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas import loadtest
from kafka_quotas.cli.charts.plot import require_matplotlib
from kafka_quotas.cli.framework.option_groups import Without, option_info
from kafka_quotas.cli.load_test.options import (
    REPORT_FILE,
    JournalFolder,
    ResultOutput,
    draw_result,
    exit_code,
    print_verdict,
    raise_all,
    settings_of,
    written_together,
)
from kafka_quotas.cli.load_test.views.view import verdict_line
from kafka_quotas.cli.options.stores import CommandConfig, ListingView
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Listing, listed
from kafka_quotas.cli.output.render import folded, print_listing, write
from kafka_quotas.commands.load_test.cleanup import RestoredRun
from kafka_quotas.commands.load_test.cleanup import restore as restore_runs
from kafka_quotas.core.described import documents_of
from kafka_quotas.core.model.value_format import format_count

_NOUN = "load-comparison"
_MOST_ROWS = 60

Run = Annotated[Path, typer.Argument(help="Folder that load-test wrote with --out, or its run.json.")]
Runs = Annotated[Path, typer.Argument(help="Folder that load-test wrote with --out (and --repeat), or a run.json.")]


def report(
    folder: Run,
    *,
    drawn: Annotated[ResultOutput, Without("out", "junit", "repeat")],
) -> int:
    """Draw the report of a kept run again, and print its verdict. report.html is written beside run.json.

    The exit code is that of the run.
    """
    place = folder if folder.is_dir() else folder.parent
    drawn.check()
    result = loadtest.read_run(folder)
    require_matplotlib()
    with written_together(place) as partial:
        draw_result(result, partial)
    failures = list(drawn.keep(result))
    print_verdict(verdict_line(result), drawn.output)
    write(f"{REPORT_FILE} drawn in {place}", sys.stderr)
    raise_all(failures)
    return exit_code(result)


def compare(first: Runs, second: Runs, *, allowed: loadtest.Limits, output: ListingView = TABLE_VIEW) -> int:
    """Compare two runs, and judge whether the second is worse than the first.

    Where both were run with --repeat, each figure has an interval of 95 %, and only a change that lies beyond the limit
    with its whole interval counts. The exit code is the verdict: 0 nothing is worse, 1 something is.
    """
    comparison = loadtest.compare(loadtest.read_runs(first), loadtest.read_runs(second), allowed)
    print_listing(_comparison_listing(comparison), output)
    if output.is_table and not output.columns:
        for note in comparison.notes:
            write(folded(f"note: {note}"), sys.stdout)
        write(_verdict(comparison), sys.stdout)
    return int(not comparison.ok)


def _comparison_listing(comparison: loadtest.RunComparison) -> Listing:
    repeats = any(each.interval is not None for each in comparison.differences)
    compared = [each for each in comparison.differences if each.outcome is not loadtest.ComparisonOutcome.NOT_COMPARED]
    figures = [each for each in compared if each.first or each.second]
    shown = sorted(figures, key=lambda each: each.outcome is not loadtest.ComparisonOutcome.WORSE)
    states = [
        (f"{len(runs)} runs, " if len(runs) > 1 else "") + str(loadtest.state_of(runs))
        for runs in (comparison.first, comparison.second)
    ]
    return listed(
        _NOUN,
        comparison,
        f"client, figure, first>, second>, change>,{' 95 %>,' if repeats else ''} allowed>, verdict",
        [_row(each, repeats=repeats) for each in shown[:_MOST_ROWS]],
        caption=f"{comparison.first[0].title}: {', then '.join(states)}",
    )


def _verdict(comparison: loadtest.RunComparison) -> str:
    worse = sum(each.outcome is loadtest.ComparisonOutcome.WORSE for each in comparison.differences)
    if comparison.state_is_worse:
        second = loadtest.state_of(comparison.second)
        return f"WORSE: the first run was met, the second is {second}; {worse} figures are worse"
    compared = sum(each.outcome is not loadtest.ComparisonOutcome.NOT_COMPARED for each in comparison.differences)
    undecided = sum(each.outcome is loadtest.ComparisonOutcome.UNDECIDED for each in comparison.differences)
    unclear = f"; {undecided} are undecided: more repeats make their intervals narrower" if undecided else ""
    if worse:
        return f"WORSE: {worse} of {compared} figures{unclear}"
    return f"not worse, by {compared} figures{unclear}"


def _row(difference: loadtest.Difference, *, repeats: bool) -> list[Cell]:
    change, interval, values = difference.change, difference.interval, (difference.first, difference.second)
    bounds = "" if interval is None else f"{interval.low:+.1%} to {interval.high:+.1%}"
    return [
        difference.entity.name.label,
        difference.metric.name,
        *("" if value is None else difference.metric.text(value, difference.entity.unit) for value in values),
        "" if change is None else f"{change:+.1%}",
        *([bounds] if repeats else []),
        "" if difference.allowed is None else f"{difference.allowed:.0%}",
        difference.outcome.value.upper()
        if difference.outcome is loadtest.ComparisonOutcome.WORSE
        else difference.outcome.value,
    ]


Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR", help="The folders that all shards wrote with --out, in any order.")
]


def merge(folders: Folders, *, output: Annotated[ResultOutput, Without("plot", "repeat")]) -> int:
    """Merge the shards of a load test into one run, and judge it as a whole.

    Histograms, samples and counts are added up exactly. The exit code is the verdict on the whole, which is void
    where a shard is void or ended early.
    """
    output.check()
    result = loadtest.merge_shards([loadtest.read_shard(folder) for folder in folders])
    failures = list(output.keep(result))
    print_verdict(verdict_line(result), output.output)
    raise_all(failures)
    return exit_code(result)


DryRun = Annotated[bool, option_info("--dry-run", help="Show what would be put back, and change nothing.")]


def restore(
    *,
    journal_dir: JournalFolder = None,
    command_config: CommandConfig = None,
    dry_run: DryRun = False,
    output: ListingView = TABLE_VIEW,
) -> int:
    """Put back the quotas that killed runs had set, and remove their topics and folders.

    What a run changes is in its journal before it is changed. A quota that somebody else has changed since is left as
    it is. Runs that have not ended are left alone. The exit code is 1 where something could not be put back.
    """
    folder = journal_dir or loadtest.default_journal_folder()
    runs = restore_runs(folder, settings_of=lambda theirs: settings_of(command_config or theirs), dry_run=dry_run)
    rows = [(run.run, run.scenario, run.store, _outcome(run)) for run in runs]
    print_listing(listed("load-restore", {"runs": documents_of(runs)}, "run!, scenario, store, outcome", rows), output)
    if not runs:
        write(f"note: nothing was left behind; there is no journal in {folder}", sys.stderr)
    return int(any(run.error is not None for run in runs))


def _outcome(run: RestoredRun) -> str:
    if run.alive:
        return "still under way, left alone"
    if run.error is not None:
        return f"FAILED: {run.error}"
    parts = [
        *([f"{format_count(len(run.quotas_restored), 'quota')} put back"] if run.quotas_restored else []),
        *([f"{len(run.quotas_as_before)} were as before"] if run.quotas_as_before else []),
        *(f"left alone, for somebody changed it: {quota}" for quota in run.quotas_changed_by_others),
        *([f"topics removed: {', '.join(run.topics)}"] if run.topics else []),
        *([f"folders removed: {', '.join(run.folders)}"] if run.folders else []),
    ]
    return "; ".join(parts) or "nothing was left to put back"
