"""Tables on a terminal. This module loads Rich; only a command that draws on a terminal imports it."""

from typing import Literal, TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from kafka_quotas.cli.render import Table, shown_cell


def print_rich_table(table: Table, stream: TextIO) -> None:
    """Nothing; the table is on the stream, folded to its width."""
    console = Console(file=stream, highlight=False)
    console.print(rich_table(table))


def rich_table(table: Table) -> RichTable:
    """The table as Rich draws it: names are text, never markup."""
    drawn = RichTable(box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1, 0, 0))
    drawn.pad_edge = drawn.show_edge = False
    drawn.title = Text(table.caption) if table.caption else None
    for column in table.columns:
        justify: Literal["left", "right"] = "right" if column.figures else "left"
        style = "cyan" if column.figures else None
        drawn.add_column(column.title, justify=justify, style=style, overflow="fold", no_wrap=column.whole)
    for row in table.rows:
        drawn.add_row(*(Text(shown_cell(cell)) for cell in row))
    return drawn
