"""`kafka-quotas examples`: list the examples that come with the program, and copy them."""

import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING, PagedGroup
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.document import document_of
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, Table, columns, print_listing, write
from kafka_quotas.commands.examples import EXAMPLES, copy_examples, examples_folder
from kafka_quotas.core.model.value_format import format_count

app = typer.Typer(cls=PagedGroup, no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """List the examples that come with the program, and copy them."""


class Example(NamedTuple):
    """An example, and what it holds."""

    name: str
    about: str


class Examples(NamedTuple):
    """The examples and the folder that they are in."""

    folder: Path
    examples: tuple[Example, ...]


@app.command("list")
def list_(*, output: ListingView = TABLE_VIEW) -> None:
    """List the examples."""
    folder = examples_folder()
    print_listing(
        Listing(
            noun="examples",
            items="examples",
            data=document_of(Examples(folder, tuple(Example(*each) for each in EXAMPLES.items()))),
            table=Table(columns=columns("name!, about"), rows=list(EXAMPLES.items())),
        ),
        output,
    )
    write(f"note: they are in {folder}; kafka-quotas examples copy NAME... copies them", sys.stderr)


@app.command()
def copy(
    *,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Examples; all if none is named.")] = None,
    to: Annotated[
        Path,
        typer.Option(
            "--to", rich_help_panel=OUTPUT_HEADING, metavar="DIR", help="The folder to copy into, which is made."
        ),
    ] = Path("kafka-quotas-examples"),
) -> None:
    """Copy examples into a folder, and leave files that are there alone."""
    copied = copy_examples(names or (), to)
    for path in copied:
        write(str(path), sys.stdout)
    write(f"note: {format_count(len(copied), 'file')} copied into {to}", sys.stderr)
