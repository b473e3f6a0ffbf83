"""Results in the form that `--output` asks for.

Invariants: data goes to standard output alone; JSON and YAML carry a `schema` with a version; numbers are plain
(`10485760`, never `1.048576E7`); rows come sorted from the caller; colour and boxes only where standard output is a
terminal, and never as the only carrier of a meaning.
"""

import sys
from dataclasses import replace
from typing import TextIO

from kafka_quotas.cli.output.json_text import Json, json_line, json_text
from kafka_quotas.cli.output.listing import (
    NO_TABLE,
    SCHEMA_PREFIX,
    TABLE_VIEW,
    Cell,
    Column,
    Listing,
    Output,
    Table,
    View,
    columns,
    plain_columns,
)
from kafka_quotas.cli.output.selection import records_of, selected
from kafka_quotas.cli.output.terminal import coloured_message, is_terminal, takes_every_letter
from kafka_quotas.core.model.value_format import format_number

__all__ = [  # a command makes and prints listings by this one import
    "NO_TABLE",
    "SCHEMA_PREFIX",
    "TABLE_VIEW",
    "Cell",
    "Column",
    "Listing",
    "Output",
    "RowStream",
    "Table",
    "View",
    "cell_text",
    "columns",
    "csv_text",
    "envelope",
    "folded",
    "is_terminal",
    "plain_columns",
    "plain_text",
    "print_listing",
    "print_table",
    "shown_cell",
    "takes_every_letter",
    "warn",
    "write",
    "yaml_text",
]
_WIDTH = 80
_MOST_LETTERS = 400
"""The most letters of a cell that tables show; JSON, YAML and CSV have all."""
_ODD_LINE_ENDS = frozenset("\x85\u2028\u2029")


def print_listing(listing: Listing, output: View | Output) -> None:
    """Print the listing, or the part of it that the view asks for."""
    view = output if isinstance(output, View) else View(form=output)
    part, more = selected(listing, view)
    if view.is_table:
        print_table(part.table, sys.stdout)
    else:
        write(_text(part, view.form), sys.stdout)
    if more:
        write(f"note: {more} more not shown, by --limit {view.limit}", sys.stderr)


def _text(listing: Listing, form: Output, *, in_stream: bool = False) -> str:
    """Return a listing in a form other than a table, in a stream of listings JSON on one line."""
    ascii_only = not takes_every_letter(sys.stdout)
    match form:
        case Output.JSON:
            return (json_line if in_stream else json_text)(envelope(listing), ascii_only=ascii_only)
        case Output.YAML:
            return ("---\n" if in_stream else "") + yaml_text(envelope(listing), ascii_only=ascii_only)
        case Output.CSV:
            return csv_text(records_of(listing))
        case _:
            return plain_text(listing.table, style="pipe")


def envelope(listing: Listing) -> dict[str, Json]:
    """Return the document of JSON and YAML: the schema's name and version, then the data."""
    return {"schema": f"{SCHEMA_PREFIX}.{listing.noun}/{listing.version}", **listing.data}


def print_table(table: Table, stream: TextIO) -> None:
    """Print the table, drawn by Rich on a terminal and by tabulate elsewhere.

    An empty one is its caption alone.
    """
    if not table.rows:
        if table.caption:
            write(table.caption, stream)
        return
    if is_terminal(stream):
        from kafka_quotas.cli.output.rich_table import print_rich_table  # noqa: PLC0415 - Rich takes longer than most commands

        print_rich_table(table, stream)
        return
    if table.caption:
        write(table.caption, stream)
    write(plain_text(table, style="simple"), stream)


def folded(line: str) -> str:
    """Fold a line between words if standard output is a terminal.

    Continuation lines are indented by two.
    """
    if not is_terminal(sys.stdout):
        return line
    import textwrap  # noqa: PLC0415 - only a terminal pays for it

    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def warn(text: str) -> None:
    """Write a warning to standard error."""
    write(f"warning: {text}", sys.stderr)


def write(text: str, stream: TextIO) -> None:
    """Write the text and a line end to the stream."""
    shown = coloured_message(text, stream) if stream is sys.stderr else text
    stream.write(shown.rstrip("\n") + "\n")


class RowStream:
    """A stream of listings of one row each.

    JSON is one document per line, YAML one document each. CSV and Markdown have one header before the first row. The
    cells of a table can't wait for wider ones, and are separated by blanks.
    """

    def __init__(self, view: View) -> None:
        self._view = replace(view, limit=None)  # the producer of the rows stops at the limit
        self._rows = 0

    def print_row(self, listing: Listing) -> None:
        """Print the row and flush it, for readers of a pipe."""
        part, _ = selected(listing, self._view)
        if self._view.is_table:
            text = "  ".join(shown_cell(cell) for row in part.table.rows for cell in row)
        else:
            text = _text(part, self._view.form, in_stream=True)
            if self._rows and self._view.form in _HEADER_LINES:
                text = text.split("\n", _HEADER_LINES[self._view.form])[-1]
        write(text, sys.stdout)
        sys.stdout.flush()
        self._rows += 1


_HEADER_LINES = {Output.CSV: 1, Output.MARKDOWN: 2}


def plain_text(table: Table, *, style: str) -> str:
    """Format the table in a style of tabulate."""
    from tabulate import tabulate  # noqa: PLC0415 - JSON and CSV do without

    mark = "\\|" if style == "pipe" else "|"  # a bar would end the cell
    return tabulate(
        [[_shortened(shown_cell(cell)).replace("|", mark) for cell in row] for row in table.rows],
        headers=[column.title for column in table.columns],
        tablefmt=style,
        colalign=["right" if column.figures else "left" for column in table.columns] if table.rows else None,
        disable_numparse=True,
    )


def _shortened(text: str) -> str:
    """Return a cell without the rest of a very long name, which would make every row as wide."""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}... ({len(text):,} letters)"


def csv_text(table: Table) -> str:
    """Format the table as CSV with a header, as in RFC 4180 but with plain line ends."""
    import csv  # noqa: PLC0415 - one form of several
    import io  # noqa: PLC0415

    header = [column.title for column in table.columns]
    lines = []
    for cells in (header, *([cell_text(cell) for cell in row] for row in table.rows)):
        line = io.StringIO()
        # The writer quotes a carriage return only where it ends lines by one itself.
        csv.writer(line, lineterminator="\r\n").writerow(cells)
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def yaml_text(value: Json, *, ascii_only: bool = False) -> str:
    """Format the value as YAML, keys in the order given, numbers plain.

    `ascii_only` escapes other letters.
    """
    import yaml  # noqa: PLC0415 - one form of several

    class PlainNumbers(yaml.SafeDumper):
        """Writes doubles as this project writes them."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - equal parts are written out, not referenced
            return True

    def plain(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
        text = format_number(number)
        kind = "float" if "." in text else "int" if text[-1].isdigit() else "str"
        return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", text)

    def whole(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # Between single quotes the emitter leaves line ends of Unicode as they are, which are read back as blanks.
        style = '"' if not _ODD_LINE_ENDS.isdisjoint(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    PlainNumbers.add_representer(float, plain)
    PlainNumbers.add_representer(str, whole)
    return yaml.dump(
        value, Dumper=PlainNumbers, sort_keys=False, allow_unicode=not ascii_only, default_flow_style=False
    )


def shown_cell(cell: Cell) -> str:
    """Format a cell for people.

    It escapes what could steer a terminal or end the row.
    """
    text = cell_text(cell)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def cell_text(cell: Cell) -> str:
    """Format a cell as text, None as an empty cell."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    return cell if isinstance(cell, str) else format_number(cell)
