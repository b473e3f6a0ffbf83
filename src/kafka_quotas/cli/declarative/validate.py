"""`kafka-quotas validate`: whether files of quotas are in order."""

import json
import sys
from dataclasses import replace
from typing import Annotated

import typer

from kafka_quotas.cli.options.declarative import Values, checked_files
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.render import Listing, Table, columns, print_listing, write
from kafka_quotas.cli.output.selection import DEFAULT_ROWS
from kafka_quotas.cli.output.view import TABLE_VIEW
from kafka_quotas.commands.declarative.files import ValidateResult
from kafka_quotas.commands.declarative.files import validate as run_validate
from kafka_quotas.core.errors import UsageError, VerdictError
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.core.quota_files.schema import json_schema

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE]...", help="YAML, JSON or TOML files, folders of them, or - for a pipe."),
]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON schema of files of quotas, and stop.")]


def validate(
    files: Files = None, *, values: Values = None, schema: Schema = False, output: ListingView = TABLE_VIEW
) -> None:
    """Check files of quotas without a store.

    Every problem is listed with its place. No server is asked: what a store refuses beyond that shows in diff and in
    apply --dry-run.
    """
    if schema:
        if files:
            raise UsageError("--schema prints the schema alone", hint="leave the files out")
        write(json.dumps(json_schema(), indent=2), sys.stdout)
        return
    result = run_validate(checked_files(files, "validate"), values=values or ())
    if not output.is_table or output.columns or result.problems:
        view = replace(output, limit=output.limit_or(DEFAULT_ROWS)) if output.is_table else output
        print_listing(_listing(result), view)
    else:
        write(f"{format_count(result.files, 'file')}, {format_count(result.entities, 'entity')}: in order", sys.stdout)
    if result.invalid_entries:
        marked = format_count(result.invalid_entries, "entity")
        write(f"note: {marked} marked invalid, which apply takes with --allow-invalid only", sys.stderr)
    if result.unused_values:
        write(f"note: no entry asks for the values {', '.join(result.unused_values)}", sys.stderr)
    if result.problems:
        raise VerdictError(f"{format_count(len(result.problems), 'problem')} in {format_count(result.files, 'file')}")


def _listing(result: ValidateResult) -> Listing:
    return Listing(
        noun="validate",
        items="problems",
        data={
            "files": result.files,
            "entities": result.entities,
            "invalid_entries": result.invalid_entries,
            "problems": [
                {
                    "file": problem.place.source,
                    "line": problem.place.line,
                    "entry": problem.place.entry,
                    "message": problem.message,
                    "hint": problem.hint,
                }
                for problem in result.problems
            ],
        },
        table=Table(
            columns=columns("where, problem, hint"),
            rows=[(str(problem.place), problem.message, problem.hint) for problem in result.problems],
        ),
    )
