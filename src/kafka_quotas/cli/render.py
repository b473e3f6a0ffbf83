"""Results in the form that `--output` asks for.

Invariants: data goes to standard output alone; JSON and YAML carry a `schema` with a version; numbers are plain
(`10485760`, never `1.048576E7`); rows come sorted from the caller; colour and boxes only where standard output is a
terminal, and never as the only carrier of a meaning.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from kafka_quotas.cli.json_text import Json, json_text
from kafka_quotas.cli.output import Output
from kafka_quotas.core.units import format_number

SCHEMA_PREFIX = "kafka-quotas"
Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its title, whether it holds figures (set to the right), and whether its cells are kept whole."""

    title: str
    figures: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One result in all its forms.

    `noun` and `version` name the schema of `data`, which JSON and YAML carry; `table` is for people (and Markdown);
    `records` is for CSV where machines want other columns than people, else `table` serves.
    """

    noun: str
    data: Mapping[str, Json]
    table: Table
    records: Table | None = None
    version: int = 1


def print_listing(listing: Listing, output: Output) -> None:
    """Nothing; the listing is on standard output."""
    match output:
        case Output.JSON:
            text = json_text(envelope(listing), ascii_only=not takes_every_letter(sys.stdout))
        case Output.YAML:
            text = yaml_text(envelope(listing), ascii_only=not takes_every_letter(sys.stdout))
        case Output.CSV:
            text = csv_text(listing.records or listing.table)
        case Output.MARKDOWN:
            text = plain_text(listing.table, style="pipe")
        case Output.TABLE:
            print_table(listing.table, sys.stdout)
            return
    write(text, sys.stdout)


def envelope(listing: Listing) -> dict[str, Json]:
    """The document of JSON and YAML: the schema's name and version, then the data."""
    return {"schema": f"{SCHEMA_PREFIX}.{listing.noun}/{listing.version}", **listing.data}


def print_table(table: Table, stream: TextIO) -> None:
    """Nothing; the table is on the stream, drawn by Rich on a terminal and by tabulate elsewhere."""
    if is_terminal(stream):
        from kafka_quotas.cli.rich_table import print_rich_table  # noqa: PLC0415 - Rich takes longer than most commands

        print_rich_table(table, stream)
        return
    if table.caption:
        write(table.caption, stream)
    write(plain_text(table, style="simple"), stream)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream."""
    return stream.isatty()


def takes_every_letter(stream: TextIO) -> bool:
    """Whether the stream's encoding has every letter; if not, JSON and YAML escape those it may lack."""
    return (stream.encoding or "utf-8").lower().replace("-", "").startswith("utf")


def write(text: str, stream: TextIO) -> None:
    """Nothing; the text and a line end are on the stream."""
    stream.write(text.rstrip("\n") + "\n")


def plain_text(table: Table, *, style: str) -> str:
    """The table as text in a style of tabulate."""
    from tabulate import tabulate  # noqa: PLC0415 - JSON and CSV do without

    mark = "\\|" if style == "pipe" else "|"  # a bar would end the cell
    return tabulate(
        [[cell_text(cell).replace("|", mark) for cell in row] for row in table.rows],
        headers=[column.title for column in table.columns],
        tablefmt=style,
        colalign=["right" if column.figures else "left" for column in table.columns] if table.rows else None,
        disable_numparse=True,
    )


def csv_text(table: Table) -> str:
    """The table as CSV with a header, as RFC 4180 has it but for plain line ends."""
    import csv  # noqa: PLC0415 - one form of several
    import io  # noqa: PLC0415

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.title for column in table.columns])
    writer.writerows([cell_text(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def yaml_text(value: Json, *, ascii_only: bool = False) -> str:
    """The value as YAML, keys in the order given, numbers plain; with `ascii_only` other letters are escaped."""
    import yaml  # noqa: PLC0415 - one form of several

    class PlainNumbers(yaml.SafeDumper):
        """Writes doubles as this project writes them."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - equal parts are written out, not referenced
            return True

    def plain(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
        text = format_number(number)
        kind = "float" if "." in text else "int" if text[-1].isdigit() else "str"
        return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", text)

    PlainNumbers.add_representer(float, plain)
    return yaml.dump(
        value, Dumper=PlainNumbers, sort_keys=False, allow_unicode=not ascii_only, default_flow_style=False
    )


def cell_text(cell: Cell) -> str:
    """A cell as text; None is an empty cell."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else format_number(cell)
