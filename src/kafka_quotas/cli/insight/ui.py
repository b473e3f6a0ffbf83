"""`kafka-quotas ui`: the page for browsers."""

import sys
from typing import TYPE_CHECKING

from kafka_quotas.cli.framework.commands import service
from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.options.journal import open_journal
from kafka_quotas.cli.options.stores import StoreOptions, UsageOptions, store_followed
from kafka_quotas.cli.output.render import warn, write
from kafka_quotas.system_clock import SystemClock

if TYPE_CHECKING:
    from kafka_quotas.enforcement.config.address import Address
    from kafka_quotas.stores.store import Store


@option_group("Page")
class PageOptions:
    """The options of `ui` about the page."""

    listen: str = option(
        "--listen [HOST:]PORT",
        default="9480",
        help="Where the page is, on 127.0.0.1 without a host; port 0 is any free one.",
    )


@service("UI")
def ui(*, page: PageOptions, source: UsageOptions, store: StoreOptions) -> None:
    """Serve a page for browsers until Ctrl-C: who is throttled, by which quota, and what changed.

    The page shows who is throttled now and was in the last hour, how close everybody is to a limit, the quotas in
    force, what applies to any user and client-id, the changes in your journal, and the daemon's health. Rates come from
    your daemon or from the brokers' own metrics, quotas from the store, else from that of the daemon. Nothing can be
    changed there. It has no login: before other machines can reach it, put something with a login in between.
    """
    from kafka_quotas.commands.web.quota_page import serve_quotas  # noqa: PLC0415 - a server that only this command needs
    from kafka_quotas.enforcement.config.address import parse_local_address  # noqa: PLC0415 - as above
    from kafka_quotas.enforcement.telemetry.log import error_text  # noqa: PLC0415 - as above

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
