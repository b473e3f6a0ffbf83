"""Rows that come one by one, printed as they come, in the form that `--output` asks for."""

import sys
from dataclasses import replace

from kafka_quotas.cli.output.json_text import json_line
from kafka_quotas.cli.output.render import (
    csv_text,
    envelope,
    plain_text,
    shown_cell,
    takes_every_letter,
    write,
    yaml_text,
)
from kafka_quotas.cli.output.selection import selected
from kafka_quotas.cli.output.table import Listing
from kafka_quotas.cli.output.view import Output, View


class RowStream:
    """A stream of listings of one row each.

    JSON is one document per line, YAML one document each. CSV and Markdown have one header before the first row. The
    cells of a table can't wait for wider ones, and are separated by blanks.
    """

    def __init__(self, view: View) -> None:
        self._view = replace(view, limit=None)  # the producer of the rows stops at the limit
        self._rows = 0

    def print_row(self, listing: Listing) -> None:
        """Print the row and flush it, for readers of a pipe.

        Raises:
            UsageError: The view names an unknown column.
        """
        part, _ = selected(listing, self._view)
        write(self._text(part), sys.stdout)
        sys.stdout.flush()
        self._rows += 1

    def _text(self, part: Listing) -> str:
        ascii_only = not takes_every_letter(sys.stdout)
        match self._view.form:
            case Output.JSON:
                return json_line(envelope(part), ascii_only=ascii_only)
            case Output.YAML:
                return "---\n" + yaml_text(envelope(part), ascii_only=ascii_only)
            case Output.CSV:
                return self._without_header(csv_text(part.records or part.table), header_lines=1)
            case Output.MARKDOWN:
                return self._without_header(plain_text(part.table, style="pipe"), header_lines=2)
            case Output.TABLE:
                return "  ".join(shown_cell(cell) for row in part.table.rows for cell in row)

    def _without_header(self, text: str, *, header_lines: int) -> str:
        return text.split("\n", header_lines)[-1] if self._rows else text
