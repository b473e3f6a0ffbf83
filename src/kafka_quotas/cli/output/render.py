"""Results in the form and the part that `--output`, `--columns` and `--limit` ask for, with colours and progress.

Invariants: data goes to standard output alone; JSON and YAML carry a `schema` with a version; numbers are plain
(`10485760`, never `1.048576E7`); rows come sorted from the caller; colour and boxes only where standard output is a
terminal, and never as the only carrier of a meaning. NO_COLOR (https://no-color.org) and a terminal of type `dumb`
switch colours off. A bar is on standard error, once something takes longer than a second.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TextIO

from kafka_quotas.cli.output.listing import (
    SCHEMA_PREFIX,
    Cell,
    Column,
    Json,
    Listing,
    Output,
    Table,
    View,
    json_line,
    json_text,
    plain_columns,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import shown_name
from kafka_quotas.core.model.quota_key import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    STORED_KEYS,
)
from kafka_quotas.core.model.value_format import (
    format_duration_ms,
    format_number,
    format_quota,
    format_share,
    format_throttle_time,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kafka_quotas.commands.quotas.watch import AnyChange
    from kafka_quotas.core.changes.plan import PlannedChange
    from kafka_quotas.core.groups.group_changes import GroupChange
    from kafka_quotas.core.model.quota_window import RecentThrottling
    from kafka_quotas.core.resolution.usage import Usage


_WIDTH = 80
_MOST_LETTERS = 400
"""The most letters of a cell that tables show; JSON, YAML and CSV have all."""
_ODD_LINE_ENDS = frozenset("\x85\u2028\u2029")
_ROWS: Final = "rows"
"""The list of a document that has only some columns."""


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
    """Print the table, drawn by Rich on a terminal and by tabulate elsewhere."""
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
    """Fold a line between words if standard output is a terminal."""
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
    """Format a cell for people, with what could steer a terminal or end the row escaped."""
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


DEFAULT_ROWS = 100
"""The most rows of changes that a table has where no limit is given: more scroll away what stands before them."""


def selected(listing: Listing, view: View) -> tuple[Listing, int]:
    """Return the part of a listing that a view asks for, and how many rows its limit leaves out.

    The rows count as the view's form counts them. With columns, JSON and YAML have `rows` of these columns only.
    """
    part, most = _with_columns(listing, view) if view.columns else listing, view.limit
    if not most:
        return part, 0
    match view.form:
        case Output.JSON | Output.YAML:
            name = _list_name(part)
            items = part.data.get(name)
            rows: Sequence[object] = items if isinstance(items, list) else ()
            part = replace(part, data={**part.data, name: items[:most]}) if isinstance(items, list) else part
        case Output.CSV:
            records = records_of(part)
            rows, part = records.rows, replace(part, records=replace(records, rows=records.rows[:most]))
        case _:
            rows, part = part.table.rows, replace(part, table=replace(part.table, rows=part.table.rows[:most]))
    return part, max(0, len(rows) - most)


def _list_name(listing: Listing) -> str:
    if listing.records is not None:
        return _ROWS
    from kafka_quotas.cli.output.schemas.catalogue import find_schema  # noqa: PLC0415 - few documents have a limit

    return find_schema(listing.noun).items


def records_of(listing: Listing) -> Table:
    """Return the rows for machines, which the schema of the listing's noun says if the listing doesn't."""
    if listing.records is not None:
        return listing.records
    # Most runs print a table or a document.
    from kafka_quotas.cli.output.schemas.catalogue import find_schema, flat_rows, headers  # noqa: PLC0415

    schema = find_schema(listing.noun)
    return Table(columns=plain_columns(headers(schema)), rows=flat_rows(schema, listing.data))


def check_columns(view: View, noun: str) -> None:
    """Check that every column of the view is one that CSV has of such a document.

    Commands whose rows come one by one call it before the first.
    """
    if view.columns:
        from kafka_quotas.cli.output.schemas.catalogue import find_schema, headers  # noqa: PLC0415 - as above

        _places(view.columns, headers(find_schema(noun)))


def _places(names: Sequence[str], known: Sequence[str]) -> list[int]:
    found = [name.lower().replace("-", "_") for name in names]
    unknown = next((name for name, each in zip(names, found, strict=True) if each not in known), None)
    if unknown is not None:
        raise UsageError(f"unknown column: {unknown!r}", hint=f"the columns are {', '.join(known)}")
    return [known.index(each) for each in found]


def _with_columns(listing: Listing, view: View) -> Listing:
    """Return the rows of CSV with the columns that the view asks for, in any form."""
    records = records_of(listing)
    places = _places(view.columns, [column.title for column in records.columns])
    rows = [[row[at] for at in places] for row in records.rows]
    titles = [records.columns[at].title for at in places]
    documents: list[Json] = [dict(zip(titles, row, strict=True)) for row in rows]
    columns = [
        Column(title=title, figures=any(isinstance(row[at], int | float) for row in rows))
        for at, title in enumerate(titles)
    ]
    table = Table(columns=columns, rows=rows, caption=listing.table.caption)
    return Listing(noun=f"{listing.noun}.rows", data={_ROWS: documents}, table=table, records=table)


BOLD: Final = "1"
RED: Final = "1;31"
YELLOW: Final = "33"
CYAN: Final = "36"
SILENT_S: Final = 1.0
_STARTS: Final = {"error": RED, "warning": YELLOW, "hint": CYAN, "note": CYAN}
_START: Final = re.compile(f"^({'|'.join(_STARTS)}):", re.MULTILINE)


def coloured(text: str, style: str, stream: TextIO) -> str:
    """Return the text in a style for the stream, unchanged where the stream takes no colour."""
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not text else f"\x1b[{style}m{text}\x1b[0m"


def coloured_message(text: str, stream: TextIO) -> str:
    """Return a message for the stream with `error:` and its like in colour."""
    return _START.sub(lambda start: coloured(start[0], _STARTS[start[1]], stream), text)


def is_terminal(stream: TextIO) -> bool:
    """Return whether a person looks at the stream."""
    return stream.isatty()


def takes_every_letter(stream: TextIO) -> bool:
    """Return whether the stream's encoding has every letter."""
    return (stream.encoding or "utf-8").lower().replace("-", "").startswith("utf")


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the number done and the total, which draws a bar until the block ends."""
    begin_s = time.monotonic()
    with ExitStack() as stack:
        drawn: list[tuple[Progress, TaskID]] = []

        def show(done: int, total: int) -> None:
            is_slow = done < total and time.monotonic() - begin_s >= SILENT_S
            if not drawn and is_slow and is_terminal(sys.stderr):
                progress = stack.enter_context(_progress())
                drawn.append((progress, progress.add_task(description, total=total)))
            for progress, task in drawn:
                progress.update(task, completed=done)

        yield show


def _progress() -> "Progress":
    from rich.console import Console  # noqa: PLC0415 - only a long run pays for Rich
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - as above

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def plain_value(key_name: str, value: float | None) -> int | float | None:
    """Return a value as the number of Kafka's own type, None where it is not set.

    The double nearest to the largest LONG is one too large.
    """
    key = STORED_KEYS.get(key_name)
    return key.unlimited if key is not None and value == float(key.unlimited) else value


def change_cells(change: "PlannedChange | GroupChange | AnyChange") -> tuple[str, str, str, str]:
    """Return a change as tables show it: the entity, the key, the old and the new value."""
    key = change.key.removeprefix("guaranteed.")
    old, new = (
        value if isinstance(value, str) else "" if key in _WHOLE else format_quota(key, value)
        for value in (change.old, change.new)
    )
    return str(change.entity), change.key, old, new


_WHOLE = ("group", "member")
"""The keys of changes of groups that are of no value."""


_SHORT = {
    PRODUCER_BYTE_RATE.name: "produce",
    CONSUMER_BYTE_RATE.name: "fetch",
    REQUEST_PERCENTAGE.name: "request",
    CONTROLLER_MUTATION_RATE.name: "mutation",
}


def short_key(key: str) -> str:
    """Return a quota key by what it limits, for tables that have many columns."""
    return _SHORT.get(key, key)


def client_text(user: str, client_id: str) -> str:
    """Return a bucket's clients, or the group whose it is, in words."""
    if user.startswith("\0"):
        from kafka_quotas.core.resolution.quota_resolver import group_text  # noqa: PLC0415 - changes of quotas do without

        return group_text((user, client_id)) or client_id
    parts = [f"user {shown_name(user)}"] if user else []
    parts += [f"client-id {shown_name(client_id)}"] if client_id else []
    return ", ".join(parts)


def throttled_text(usage: "Usage") -> str:
    """Return the throttling of the last minute, or else the throttle time, as text."""
    recent = usage.last_minute
    return format_throttle_time(usage.throttle_ms) if recent is None else last_minute_text(recent)


def last_minute_text(recent: "RecentThrottling") -> str:
    """Return the throttling of the last minute by number, sum and share: `36x 41 s, 68%`, or `never`."""
    if not recent.times:
        return "never"
    return f"{recent.times}x {format_duration_ms(float(f'{recent.total_ms:.3g}'))}, {format_share(recent.share)}"
