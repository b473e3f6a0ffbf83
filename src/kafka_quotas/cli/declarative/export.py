"""`kafka-quotas export`: what a store holds, as a file that `apply` reads."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from kafka_quotas.cli.options.declarative import Selectors
from kafka_quotas.cli.options.stores import StoreOptions
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.declarative.files import export as run_export
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_files.writer import FileFormat
from kafka_quotas.stores.files.atomic_write import save_text

_SUFFIXES = {".yaml": FileFormat.YAML, ".yml": FileFormat.YAML, ".json": FileFormat.JSON, ".toml": FileFormat.TOML}

Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to this file instead of standard output.")
]
Form = Annotated[
    FileFormat | None,
    typer.Option(
        "--format", metavar="FORM", help="yaml, json or toml; without it the name of the file tells, else yaml."
    ),
]


def export(*, out: Out = None, form: Form = None, selectors: Selectors = None, store: StoreOptions) -> None:
    """Write stored quotas as a file that apply reads.

    Entities come sorted, one per line, so that two exports compare well. Applying an export elsewhere and exporting
    there gives the same file. Values that this program refuses to send, such as 0, are marked 'invalid: true'.
    """
    choice = store.choose()
    chosen = form or _SUFFIXES.get(out.suffix if out else ".yaml")
    if chosen is None:
        raise UsageError(f"what is {out} to be written in?", hint="name it .yaml, .json or .toml, or add --format")
    with closing(choice.open()) as opened:
        result = run_export(opened, selectors=selectors or ())
    if out is None:
        sys.stdout.writelines(result.text(chosen))
    else:
        save_text(out, result.text(chosen))
        write(f"note: {len(result.entries)} entities written to {out}", sys.stderr)
    if result.invalid_entries:
        write(
            f"note: {result.invalid_entries} entities have values that apply takes with --allow-invalid only",
            sys.stderr,
        )
