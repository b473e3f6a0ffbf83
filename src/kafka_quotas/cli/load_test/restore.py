"""`kafka-quotas load-test restore`: put back what a killed run has changed."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kafka_quotas.cli.load_test.target_options import JournalFolder, settings_of
from kafka_quotas.cli.options.stores import CommandConfig, ListingView
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, Table, columns, print_listing, write
from kafka_quotas.commands.load_test.cleanup import RestoredRun, format_change
from kafka_quotas.commands.load_test.cleanup import restore as restore_runs
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.loadtest.run.journal import default_journal_folder

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be put back, and change nothing.")]


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
    folder = journal_dir or default_journal_folder()
    runs = restore_runs(folder, settings_of=lambda theirs: settings_of(command_config or theirs), dry_run=dry_run)
    print_listing(_listing(runs), output)
    if not runs:
        write(f"note: nothing was left behind; there is no journal in {folder}", sys.stderr)
    return 0 if all(run.ok for run in runs) else 1


def _listing(runs: Sequence[RestoredRun]) -> Listing:
    return Listing(
        noun="load-restore",
        data={"runs": [_document(run) for run in runs]},
        items="runs",
        table=Table(
            columns=columns("run!, scenario, store, outcome"),
            rows=[
                (
                    run.journal.stem,
                    "" if run.header is None else run.header.scenario,
                    "" if run.header is None else run.header.store,
                    _outcome(run),
                )
                for run in runs
            ],
        ),
    )


def _outcome(run: RestoredRun) -> str:
    if run.alive:
        return "still under way, left alone"
    if run.error is not None:
        return f"FAILED: {run.error}"
    parts = [
        *([f"{format_count(len(run.quotas.restored), 'quota')} put back"] if run.quotas.restored else []),
        *([f"{len(run.quotas.unchanged)} were as before"] if run.quotas.unchanged else []),
        *(f"left alone, for somebody changed it: {format_change(change)}" for change in run.quotas.foreign),
        *([f"topics removed: {', '.join(run.topics)}"] if run.topics else []),
        *([f"folders removed: {', '.join(run.folders)}"] if run.folders else []),
    ]
    return "; ".join(parts) or "nothing was left to put back"


def _document(run: RestoredRun) -> dict[str, Json]:
    return {
        "run": run.journal.stem,
        "scenario": None if run.header is None else run.header.scenario,
        "store": None if run.header is None else run.header.store or None,
        "alive": run.alive,
        "error": run.error,
        "quotas_restored": [format_change(change) for change in run.quotas.restored],
        "quotas_as_before": [format_change(change) for change in run.quotas.unchanged],
        "quotas_changed_by_others": [format_change(change) for change in run.quotas.foreign],
        "topics": list(run.topics),
        "folders": list(run.folders),
    }
