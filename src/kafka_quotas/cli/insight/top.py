"""`kafka-quotas top` and `ui`: who uses how much of which quota, live on the terminal or as a page for browsers."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TextIO

from kafka_quotas.cli.framework.commands import service
from kafka_quotas.cli.framework.option_groups import flag, option, option_group
from kafka_quotas.cli.framework.store_choice import StoreChoice
from kafka_quotas.cli.options.stores import (
    ListingView,
    StoreOptions,
    UsageOptions,
    open_journal,
    store_followed,
    store_for,
)
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, Listing, View, columns, listed
from kafka_quotas.cli.output.render import (
    check_columns,
    client_text,
    is_terminal,
    print_listing,
    selected,
    short_key,
    throttled_text,
    warn,
    write,
)
from kafka_quotas.commands.insight.usage import SortBy, TopResult, TopRow
from kafka_quotas.commands.insight.usage import top as run_top
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.model.value_format import format_count, format_limit, format_rate, format_share

if TYPE_CHECKING:
    from kafka_quotas.enforcement import Address
    from kafka_quotas.stores import Store


@contextmanager
def typed_keys(stream: TextIO | None) -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits for the next key typed on a terminal, None where none is typed in time.

    Its key is an empty text where the terminal is gone, and no terminal has keys. The terminal is as before after the
    block. Ctrl-C interrupts, as ever.
    """
    if stream is None or not stream.isatty():
        yield time.sleep
        return
    import termios  # noqa: PLC0415 - only a terminal has it
    import tty  # noqa: PLC0415

    def key(timeout_s: float) -> str | None:
        readable, _, _ = select.select([stream], [], [], timeout_s)
        # A buffered read would take the keys after it, of which select sees nothing.
        return os.read(stream.fileno(), 1).decode(errors="replace") if readable else None

    before = termios.tcgetattr(stream)
    tty.setcbreak(stream, termios.TCSANOW)
    try:
        yield key
    finally:
        termios.tcsetattr(stream, termios.TCSANOW, before)


_COLUMNS = columns("client, quota!, broker, rate>!, limit>!, used>!, throttled>!, level>")


@option_group("Live table")
class _TopOptions:
    sort: SortBy = option(
        "--sort BY", default=SortBy.SHARE, help="share, rate, limit, throttle (largest first) or name."
    )
    once: bool = flag("--once", help="Print the table once and stop, as it does without a terminal.")
    interval: float = option("--interval SECONDS", default=2.0, min=0.1, help="How often the table is refreshed.")


def top(*, asked: _TopOptions, source: UsageOptions, store: StoreOptions, output: ListingView = TABLE_VIEW) -> None:
    """Show who uses how much of which quota, live until q or Ctrl-C.

    A row is a bucket at a broker: its rate, the limit, the share used, the throttling, and the level that set the
    limit. A daemon counts the throttle times of the last minute, their sum, and the part of it in which clients
    waited; brokers report an average throttle time. Limits of brokers come from the store.
    """
    choice = store.choose()
    if asked.once or not output.is_table or not is_terminal(sys.stdout):
        result = _now(source, choice, asked.sort, output.limit or None)
        print_listing(_listing(result), output)
        for note in result.notes:
            write(note if note.startswith(" ") else f"note: {note}", sys.stderr)
        return
    check_columns(output, "top")
    _live(source, choice, asked.sort, output, interval_s=asked.interval)


def _now(source: UsageOptions, choice: StoreChoice, sort: SortBy, limit: int | None) -> TopResult:
    choice.check_exists()
    reading = source.read(choice)
    with closing(store_for(choice, reading).open()) as opened:
        return run_top(opened, reading, sort=sort, limit=limit)


def _live(source: UsageOptions, choice: StoreChoice, sort: SortBy, view: View, *, interval_s: float) -> None:
    """Redraw the table until `q` or Ctrl-C ends it, sorted by the next column after each `s`."""
    from rich.console import Console, Group  # noqa: PLC0415 - only a terminal pays for Rich
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from kafka_quotas.cli.output.rich_table import rich_table  # noqa: PLC0415

    console = Console(file=sys.stdout, highlight=False)
    orders = list(SortBy)
    with typed_keys(sys.stdin) as next_key, Live(console=console, auto_refresh=False, screen=False) as live:
        while True:
            result = _now(source, choice, sort, view.limit or max(5, console.size.height - 6))
            following = orders[(orders.index(sort) + 1) % len(orders)]
            notes = [Text(note) for note in result.notes]
            notes.append(Text(f"by {sort}; s sorts by {following}, q quits", style="dim"))
            shown, _ = selected(_listing(result), view)
            live.update(Group(rich_table(shown.table), *notes), refresh=True)
            match next_key(interval_s):
                case "q" | "":
                    return
                case "s":
                    sort = following


def _listing(result: TopResult) -> Listing:
    throttled = sum(row.held_back for row in result.rows)
    waiting = sum(bool(row.usage.is_waiting) for row in result.rows)
    knows = any(row.usage.last_minute is not None for row in result.rows)
    held = f"{throttled} throttled in the last minute, {waiting} at this instant" if knows else f"{throttled} throttled"
    more = f", {result.left_out} more not shown" if result.left_out else ""
    caption = f"{result.origin}: {format_count(len(result.rows), 'bucket')}, {held}{more}"
    return listed("top", result, _COLUMNS, [_cells(row) for row in result.rows], caption=caption)


def _cells(row: TopRow) -> list[Cell]:
    usage = row.usage
    return [
        client_text(usage.user, usage.client_id),
        short_key(usage.key),
        usage.broker,
        format_rate(usage.key, usage.observed),
        format_limit(usage.key, row.limit),
        format_share(row.share),
        throttled_text(usage),
        row.level,
    ]


@option_group("Page")
class _PageOptions:
    listen: str = option(
        "--listen [HOST:]PORT",
        default="9480",
        help="Where the page is, on 127.0.0.1 without a host; port 0 is any free one.",
    )


@service("UI")
def ui(*, page: _PageOptions, source: UsageOptions, store: StoreOptions) -> None:
    """Serve a page for browsers until Ctrl-C: who is throttled, by which quota, and what changed.

    The page shows who is throttled now and was in the last hour, how close everybody is to a limit, the quotas in
    force, what applies to any user and client-id, the changes in your journal, and the daemon's health. Rates come from
    your daemon or from the brokers' own metrics, quotas from the store, else from that of the daemon. Nothing can be
    changed there. It has no login: before other machines can reach it, put something with a login in between.
    """
    from kafka_quotas.commands.web.quota_page import serve_quotas  # noqa: PLC0415 - a server that only this command needs
    from kafka_quotas.enforcement import error_text, parse_local_address  # noqa: PLC0415 - as above

    choice = store.choose()
    choice.check_exists()

    def open_store(daemon_store: str | None) -> "Store":
        return store_followed(choice, daemon_store).open_existing()

    def serving(address: "Address") -> None:
        write(f"note: the page is at http://{address}/ (Ctrl-C ends it)", sys.stderr)

    serve_quotas(
        parse_local_address(page.listen),
        source=source.source(choice),
        open_store=open_store,
        journal=open_journal(),
        clock=SystemClock(),
        serving=serving,
        on_defect=lambda error: warn(error_text(error)),
    )
