"""`kafka-quotas daemon decide`: one question about a quota, as other programs put it."""

from typing import Annotated

import typer

from kafka_quotas.cli.daemon_options import Control
from kafka_quotas.cli.options import ListingView
from kafka_quotas.cli.output import TABLE_VIEW
from kafka_quotas.cli.render import Column, Listing, Table, print_listing
from kafka_quotas.commands import daemon
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.quota_manager import QuotaType
from kafka_quotas.core.units import parse_bytes
from kafka_quotas.enforcement.decision import Ask, Decision, Op
from kafka_quotas.enforcement.decision_json import write_decision
from kafka_quotas.enforcement.rules import ANONYMOUS

_BYTES = (QuotaType.PRODUCE, QuotaType.FETCH)
_COLUMNS = (
    Column(title="delay", figures=True),
    Column(title="quota"),
    Column(title="entity"),
    Column(title="limit", figures=True),
    Column(title="observed", figures=True),
)

OpArgument = Annotated[
    str, typer.Argument(metavar="record|check|unrecord", help="Charge an amount, ask about it, or give it back.")
]
TypeOption = Annotated[QuotaType, typer.Option("--type", help="The quota type that the amount is of.")]
AmountOption = Annotated[
    str,
    typer.Option(
        "--amount", metavar="AMOUNT", help="Bytes (with units), ms of thread time, partitions or requests, by --type."
    ),
]
UserOption = Annotated[str, typer.Option("--user", metavar="NAME", help="Who it is.")]
ClientOption = Annotated[str, typer.Option("--client", metavar="ID", help="The client-id.")]
BrokerOption = Annotated[
    int | None,
    typer.Option("--broker", metavar="ID", help="Whose buckets. Default: the broker behind the bootstrap listener."),
]


def decide(
    op: OpArgument,
    *,
    quota_type: TypeOption = QuotaType.PRODUCE,
    amount: AmountOption = "0",
    user: UserOption = ANONYMOUS,
    client: ClientOption = "",
    broker: BrokerOption = None,
    control: Control = None,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Ask a running daemon how long a client has to wait, and which quota says so.

    The answer comes from the buckets that the daemon charges its own clients to.
    """
    ask = Ask(_op(op), quota_type, _amount(amount, quota_type), user, client, broker=broker)
    print_listing(decision_listing(daemon.decide(control, ask)), output)


def decision_listing(decision: Decision) -> Listing:
    """One decision as a table of one row, and as JSON."""
    limit = f"{decision.limit:g}" if decision.entity else "unlimited"
    delay = f"{decision.delay_ms} ms" + (" (shadow)" if decision.is_shadow else "")
    row = (delay, decision.quota, decision.entity, limit, f"{decision.observed:.6g}")
    record = (decision.delay_ms, decision.quota, decision.entity, decision.limit, decision.observed)
    return Listing(
        noun="decision",
        data=write_decision(decision),
        table=Table(columns=_COLUMNS, rows=[row]),
        records=Table(columns=_COLUMNS, rows=[record]),
    )


def _op(text: str) -> Op:
    try:
        return Op[text.upper()]
    except KeyError as error:
        raise UsageError(f"not an operation: {text!r}", hint="record, check or unrecord") from error


def _amount(text: str, quota_type: QuotaType) -> float:
    if quota_type in _BYTES:
        return float(parse_bytes(text))
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"not a number: {text!r}") from error
