"""`kafka-quotas daemon decide`: one question about a quota, as other programs put it."""

from typing import Annotated

import typer

from kafka_quotas.cli.daemon.options import AskedDaemon
from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, Table, columns, print_listing
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.units import parse_bytes
from kafka_quotas.core.quotas.quota_manager import QuotaType
from kafka_quotas.enforcement.config.rules import ANONYMOUS
from kafka_quotas.enforcement.control.client import DecisionClient, find_control_path
from kafka_quotas.enforcement.decisions import (
    ANY_QUOTA_TYPES,
    AnyQuotaType,
    Decision,
    DecisionRequest,
    Operation,
    ResourceQuota,
    decision_to_json,
)

_BYTES = (QuotaType.PRODUCE, QuotaType.FETCH, ResourceQuota.TOPIC)
_COLUMNS = columns("delay>, quota, entity, limit>, observed>")

OpArgument = Annotated[
    str, typer.Argument(metavar="record|check|unrecord", help="Charge an amount, ask about it, or give it back.")
]


@option_group("Amount")
class DecideOptions:
    """The options of `daemon decide` about the amount and whose it is."""

    quota_type: str = option(
        "--type TYPE",
        default=QuotaType.PRODUCE.value,
        help=f"What the amount is of: {', '.join(ANY_QUOTA_TYPES)}.",
        autocompletion=lambda: list(ANY_QUOTA_TYPES),
    )
    amount: str = option(
        "--amount AMOUNT",
        default="0",
        help="Bytes (with units), ms of thread time, partitions, requests or connections, by --type.",
    )
    user: str = option("--user NAME", default=ANONYMOUS, help="The user.")
    client: str = option("--client ID", default="", help="The client-id.")
    ip: str = option("--ip IP", default="", help="The address of the client, for --type connection.")
    topic: str = option("--topic NAME", default="", help="The topic, for --type topic.")
    broker: int | None = option(
        "--broker ID", help="The broker whose buckets are asked. Default: the broker behind the bootstrap listener."
    )


def decide(op: OpArgument, *, asked: DecideOptions, daemon: AskedDaemon, output: ListingView = TABLE_VIEW) -> None:
    """Ask a running daemon how long a client has to wait, and by which quota.

    The answer comes from the buckets that the daemon charges its own clients to.
    """
    quota_type = _type(asked.quota_type)
    amount = _amount(asked.amount, quota_type)
    ask = DecisionRequest(_op(op), quota_type, amount, asked.user, asked.client, asked.ip, asked.topic, asked.broker)
    with DecisionClient(daemon.path() or find_control_path()) as client:
        decision = client.ask(ask)
    print_listing(decision_listing(decision), output)


def decision_listing(decision: Decision) -> Listing:
    """Return one decision as a table of one row, and as JSON."""
    limit = f"{decision.limit:g}" if decision.entity else "unlimited"
    delay = f"{decision.delay_ms} ms" + (" (shadow)" if decision.is_shadow else "")
    row = (delay, decision.quota, decision.entity, limit, f"{decision.observed:.6g}")
    data = decision_to_json(decision)
    if data["quota"]:
        data["quota"]["entity"] = Entity.from_text(decision.entity).to_mapping()
    return Listing(
        noun="decision",
        data=data,
        table=Table(columns=_COLUMNS, rows=[row]),
    )


def _op(text: str) -> Operation:
    try:
        return Operation(text.lower())
    except ValueError as error:
        raise UsageError(f"not an operation: {text!r}", hint="record, check or unrecord") from error


def _type(text: str) -> AnyQuotaType:
    asked = ANY_QUOTA_TYPES.get(text)
    if asked is None:
        raise UsageError(f"not a type: {text!r}", hint=f"one of {', '.join(ANY_QUOTA_TYPES)}")
    return asked


def _amount(text: str, quota_type: AnyQuotaType) -> float:
    if quota_type in _BYTES:
        return float(parse_bytes(text))
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"not a number: {text!r}") from error
