"""`kafka-quotas tree`: the stored quotas as Kafka looks through them, with what wins and what is shadowed."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Annotated

import typer

from kafka_quotas.cli.completion.values import complete_keys
from kafka_quotas.cli.framework.commands import EntityCommand
from kafka_quotas.cli.framework.store_choice import print_static_note
from kafka_quotas.cli.options.entity import ClientNames
from kafka_quotas.cli.options.stores import ListingView, StoreOptions
from kafka_quotas.cli.output.document import document_of
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, Table, columns, print_listing, takes_every_letter, write
from kafka_quotas.cli.output.selection import DEFAULT_ROWS
from kafka_quotas.cli.output.values import plain_value
from kafka_quotas.commands.insight.tree import Branch, TreeResult
from kafka_quotas.commands.insight.tree import tree as run_tree
from kafka_quotas.commands.quotas.quota_status import QuotaStatus, StoredQuotaStatus
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.value_format import format_count, format_quota

app = typer.Typer(add_completion=False)

Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Only the tree of this quota key.", autocompletion=complete_keys),
]

_PIECES = {True: ("├── ", "└── ", "│   ", "    "), False: ("|-- ", "`-- ", "|   ", "    ")}
"""How branches are drawn: one that others follow, the last one, and what goes before the lines below each of them."""


@app.command(cls=EntityCommand)
def tree(*, key: Key = None, named: ClientNames, store: StoreOptions, output: ListingView = TABLE_VIEW) -> None:
    """Draw the stored quotas as the tree that Kafka looks through, one per quota key.

    Each quota is marked: it wins, it applies to clients without a client-id only, it is shadowed (without effect) or
    ignored (brokers don't read it). With --user, --client or --ip only the quotas that fit this client are drawn; a
    --user without --client is one with a client-id that nothing is stored for.
    """
    if key is not None and key not in QUOTA_KEYS:
        raise UsageError(f"unknown quota key: {key!r}", hint=f"the keys are {', '.join(QUOTA_KEYS)}")
    named.check()
    choice = store.choose()
    with closing(choice.open_existing()) as opened:
        result = run_tree(opened, key=key, user=named.user, client_id=named.client, ip=named.ip)
    if output == TABLE_VIEW:
        lines = [*drawn(result, pieces=_PIECES[takes_every_letter(sys.stdout)])]
        if lines:
            write("\n".join(lines), sys.stdout)
    else:
        print_listing(_listing(result), output)
    if output == TABLE_VIEW and len(result.quotas) > DEFAULT_ROWS:
        quotas = format_count(len(result.quotas), "quota", separator=",")
        write(f"note: {quotas}; --user, --client and --ip draw only what fits a client", sys.stderr)
    if not result.quotas:
        fits = "no stored quota fits this client" if result.about_client else "no quota is stored"
        write(f"note: {fits} in {result.store_url}", sys.stderr)
        print_static_note(result.store_url)


def drawn(result: TreeResult, *, pieces: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the trees, an empty one between them."""
    for number, of_key in enumerate(result.trees):
        if number:
            yield ""
        yield of_key.key
        yield from _below(of_key.branches, "", pieces)


def _below(branches: Sequence[Branch], indent: str, pieces: Sequence[str]) -> Iterator[str]:
    more, last, go_on, ended = pieces
    for branch in branches:
        is_last = branch is branches[-1]
        yield indent + (last if is_last else more) + _branch_text(branch)
        yield from _below(branch.below, indent + (ended if is_last else go_on), pieces)


def _branch_text(branch: Branch) -> str:
    name = str(Entity(parts=((branch.entity_type, branch.name),)))
    if branch.quota is None:
        return name
    quota = branch.quota
    level = "" if quota.level is None else f"level {quota.level}, "
    return f"{name}: {format_quota(quota.key, quota.limit)} ({level}{_mark(quota)})"


def _mark(quota: StoredQuotaStatus) -> str:
    before = None if quota.shadowed_by is None else str(quota.shadowed_by)
    match quota.status:
        case QuotaStatus.WINS:
            return "wins"
        case QuotaStatus.PARTLY:
            return f"only without client-id: else {before or 'unlimited'}"
        case QuotaStatus.SHADOWED:
            return f"shadowed by {before}" if before else "shadowed: the levels in use pass it over"
        case QuotaStatus.IGNORED:
            return "ignored by brokers"


def _listing(result: TreeResult) -> Listing:
    return Listing(
        noun="tree",
        items="quotas",
        data=document_of(result),
        table=Table(
            columns=columns("key!, level>!, entity, value>!, status!, shadowed by"),
            rows=[
                (
                    quota.key,
                    quota.level,
                    str(quota.entity),
                    plain_value(quota.key, quota.limit),
                    quota.status.value,
                    None if quota.shadowed_by is None else str(quota.shadowed_by),
                )
                for quota in result.quotas
            ],
        ),
    )
