"""Tables on a terminal.

This module loads Rich, so only commands that draw on a terminal import it.

A table that is too wide is folded within its columns, between words first. Where even that can't hold it, its rows are
printed one below the other, a line per cell: a heading that is broken into pieces can't be read.
"""

from collections.abc import Sequence
from typing import Literal, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from kafka_quotas.cli.output.listing import Cell, Column, Table
from kafka_quotas.cli.output.render import shown_cell

_MEANINGS = {"error": "bold red", "warning": "yellow", "failed": "bold red", "met": "green"}
"""The styles of cells that say how serious something is."""
_CHANGES = {"+": "green", "~": "yellow", "-": "red", "less": "red", "more": "green"}
"""The styles of cells under `mark` and `gets`, which say what becomes of a quota."""
_LEAST_NAME = 12
"""Names are folded to no fewer letters, or there is not much of a name to be seen."""


def print_rich_table(table: Table, stream: TextIO) -> None:
    """Print the table, folded to the width of the terminal."""
    console = Console(file=stream, highlight=False)
    gaps = len(table.columns) - 1
    least = sum(_least_width(column, [row[at] for row in table.rows]) for at, column in enumerate(table.columns))
    if least + gaps > console.width and table.rows:
        _print_rows_apart(table, console)
    else:
        console.print(rich_table(table, gap=2 if least + 2 * gaps <= console.width else 1))


def rich_table(table: Table, *, gap: int = 2) -> RichTable:
    """Return the table for Rich, with names as text, never as markup."""
    drawn = RichTable(box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, gap - 1, 0, 0))
    drawn.pad_edge = drawn.show_edge = False
    drawn.title = Text(table.caption) if table.caption else None
    for column in table.columns:
        justify: Literal["left", "right"] = "right" if column.figures else "left"
        drawn.add_column(column.title, justify=justify, style=_style(column), overflow="fold", no_wrap=column.whole)
    styles = [_CHANGES if column.title in ("mark", "gets") else _MEANINGS for column in table.columns]
    for row in table.rows:
        pairs = zip(styles, row, strict=True)
        drawn.add_row(*(Text(shown_cell(cell), style=meanings.get(str(cell), "")) for meanings, cell in pairs))
    return drawn


def _print_rows_apart(table: Table, console: Console) -> None:
    if table.caption:
        console.print(Text(table.caption, style="bold"))
    for number, row in enumerate(table.rows):
        block = RichTable.grid(padding=(0, 2, 0, 0))
        block.add_column(style="bold", no_wrap=True)
        block.add_column(overflow="fold")
        for column, cell in zip(table.columns, row, strict=True):
            block.add_row(Text(column.title), Text(shown_cell(cell), style=_style(column) or ""))
        if number:
            console.print()
        console.print(block)


def _style(column: Column) -> str | None:
    return "cyan" if column.figures else None


def _least_width(column: Column, cells: Sequence[Cell]) -> int:
    """Return the smallest width in which a column is readable.

    The heading breaks between words only. Cells stay whole, or as short as names get.
    """
    heading = max(map(cell_len, column.title.split()), default=0)
    texts = [shown_cell(cell) for cell in cells]
    if column.whole:
        return max([cell_len(column.title), *map(cell_len, texts)])
    words = (cell_len(word) for text in texts for word in text.split())
    return max(heading, min(_LEAST_NAME, max(words, default=0)))
