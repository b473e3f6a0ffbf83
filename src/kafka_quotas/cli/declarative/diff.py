"""`kafka-quotas diff`: what differs between files of quotas and a store, and for whom that counts."""

import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.declarative.several import (
    ContextsOptions,
    ContextView,
    StoreWithoutContext,
    run_each,
)
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.store_choice import StoreChoice
from kafka_quotas.cli.options.declarative import DesiredOptions
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.document import document_of
from kafka_quotas.cli.output.plan_view import (
    changes_table,
    print_radius,
    print_unmanaged,
    summary,
)
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, View, print_listing, print_table, write
from kafka_quotas.cli.output.selection import DEFAULT_ROWS
from kafka_quotas.commands.declarative.plan import DesiredState, DiffResult
from kafka_quotas.commands.declarative.plan import diff as run_diff
from kafka_quotas.core.changes.plan import plan_text
from kafka_quotas.core.errors import KafkaQuotasError, UsageError

DIFFERENT = 3

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="YAML, JSON or TOML files, folders of them, or - for a pipe."),
]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="End with 3 when something differs.")]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        rich_help_panel=OUTPUT_HEADING,
        metavar="FILE.json",
        help="Keep the plan in this file; apply carries it out unless the store has changed.",
    ),
]


def diff(
    files: Files = None,
    *,
    desired: DesiredOptions,
    out: PlanFile = None,
    exit_code: ExitCode = False,
    named: ContextsOptions,
    store: StoreWithoutContext,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Show what differs between files of quotas and a store, and for whom.

    Below the quotas that change it lists the clients whose effective quota changes, because another entity wins or
    another limit applies. Nothing is written to the store. With several contexts each result is listed under its
    name, and the exit code
    is 1 if any of them failed.
    """
    desired_state = desired.state(files, "diff")
    choices = named.choose(store)
    if len(choices) > 1:
        if out is not None:
            raise UsageError("--out keeps the plan of one store", hint="name one context")
        view = ContextView(noun="diff", report=partial(_report, output=output), listing=_listing, check=_accept)
        results = run_each(choices, partial(_differences, desired_state), view, output)
    else:
        results = [_differences(desired_state, choices[0])]
        if out is not None:
            _keep(out, results[0])
        _report(results[0], output)
    if exit_code and any(result.differs for result in results):
        raise typer.Exit(DIFFERENT)


def _differences(desired_state: DesiredState, choice: StoreChoice) -> DiffResult:
    with closing(choice.open()) as opened:
        return run_diff(opened, desired_state)


def _accept(_: DiffResult) -> None:
    """Accept every result: a difference is no failure."""


def _keep(path: Path, result: DiffResult) -> None:
    try:
        path.write_text(plan_text(result.kept()), encoding="utf-8")
    except OSError as error:
        raise KafkaQuotasError(f"cannot write {path}: {error.strerror or error}") from error
    write(f"note: plan kept in {path}; kafka-quotas apply {path} carries it out", sys.stderr)


def _report(result: DiffResult, output: View) -> None:
    changes = result.declared.plan.changes
    if not output.is_table or output.columns:
        print_listing(_listing(result), output)
    elif changes:
        limit = output.limit_or(DEFAULT_ROWS)
        print_table(changes_table(changes, limit=limit), sys.stdout)
        print_radius(result.radius, limit=limit)
        write(f"\n{summary(changes, result.radius)}", sys.stdout)
    print_unmanaged(result.declared)
    if not changes:
        write(f"note: no differences from {result.store_url}", sys.stderr)


def _listing(result: DiffResult) -> Listing:
    return Listing(
        noun="diff",
        items="changes",
        data=document_of(result),
        table=changes_table(result.declared.plan.changes),
    )
