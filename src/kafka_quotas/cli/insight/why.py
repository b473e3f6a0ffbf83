"""`kafka-quotas why`: whether a client is slow because of quotas."""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from kafka_quotas.cli.framework.commands import EntityCommand
from kafka_quotas.cli.framework.option_groups import Without
from kafka_quotas.cli.options.entity import ClientNames
from kafka_quotas.cli.options.stores import ListingView, StoreOptions, UsageOptions, store_for
from kafka_quotas.cli.output.document import document_of
from kafka_quotas.cli.output.render import (
    TABLE_VIEW,
    Cell,
    Listing,
    Table,
    columns,
    folded,
    print_listing,
    write,
)
from kafka_quotas.cli.output.values import client_text, short_key, throttled_text
from kafka_quotas.commands.insight.why import KeyAnswer, WhyResult
from kafka_quotas.commands.insight.why import why as run_why
from kafka_quotas.core.described import Sentences
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.value_format import (
    format_count,
    format_duration_ms,
    format_limit,
    format_quota,
    format_rate,
    format_share,
    format_throttle_time,
)
from kafka_quotas.core.resolution.usage import share_used, with_headroom

app = typer.Typer(add_completion=False)

_COLUMNS = columns("quota!, limit>!, set on, broker, observed>!, used>!, throttled>!")


@app.command(cls=EntityCommand)
def why(
    *,
    named: Annotated[ClientNames, Without("ip")],
    source: UsageOptions,
    store: StoreOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Explain whether quotas slow a client down.

    For each quota key: what applies to the client, and the rate and throttle time of its bucket at each broker, from a
    running daemon or the brokers' own metrics. The last lines name the quota that held it back in the last minute, how
    often, how long, and the value that would end it. Without a store the one that the daemon follows is asked.
    """
    if named.user is None and named.client is None:
        raise UsageError("no client is named", hint="--user NAME, --client ID, or both")
    named.check()
    choice = store.choose()
    choice.check_exists()
    reading = source.read(choice)
    with closing(store_for(choice, reading).open()) as opened:
        result = run_why(opened, reading, user=named.user, client_id=named.client)
    print_listing(_listing(result), output)
    if output.is_table and not output.columns:
        write("\n" + "\n".join(map(folded, verdict(result))), sys.stdout)
    for note in result.notes:
        write(note if note.startswith(" ") else f"note: {note}", sys.stderr)


def verdict(result: WhyResult) -> Iterator[str]:
    """Yield the answer in words, a line each."""
    who = client_text(result.user, result.client_id)
    culprit = result.culprit
    if culprit is None:
        yield from _innocent(result, who)
        return
    key, limit = culprit.quota.key.name, culprit.limit
    on = "" if culprit.quota.entity is None else f", set on {culprit.quota.entity}"
    yield (
        f"yes: {key} holds {who} back: {format_rate(key, max(usage.observed for usage in culprit.usages))} "
        f"against {format_quota(key, limit or 0.0)}{on}, {_throttled(culprit)}"
    )
    yield f"the bucket is used by {culprit.quota.shared_with}; the limit holds per broker"
    if culprit.ends_at is not None:
        value = with_headroom(culprit.ends_at)
        yield (
            f"{key}={_config(value)} ({format_rate(key, value)}) would end it at the present demand, with a fifth to "
            "spare; a client that was held back may ask for more"
        )


def _throttled(answer: KeyAnswer) -> str:
    """Return how often and how long the clients of a bucket were throttled, as far as it is known."""
    recent = answer.last_minute
    if recent is None or not recent.times:
        return f"throttled for {format_throttle_time(answer.throttle_ms)}"
    total = format_duration_ms(float(f"{recent.total_ms:.3g}"))
    held = f"throttled {format_count(recent.times, 'time')} for {total} in the last minute"
    return f"{held}, {format_share(recent.share)} of it{'' if answer.is_waiting else '; not at this instant'}"


def _innocent(result: WhyResult, who: str) -> Iterator[str]:
    shares = [answer for answer in result.answers if answer.share is not None]
    if not any(answer.usages for answer in result.answers):
        yield f"not known: no rates were seen for {who}"
        return
    most = max(shares, key=lambda answer: answer.share or 0.0, default=None)
    used = "it has no limit" if most is None else f"at most {format_share(most.share)} of {most.quota.key.name} is used"
    knows = any(answer.last_minute is not None for answer in result.answers)
    yield f"no: no quota {f'held {who} back in the last minute' if knows else f'holds {who} back now'}; {used}"


def _config(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class WhyDocument:
    """The answers and the verdict in words."""

    DOCUMENT: ClassVar = (
        "store=result.store_url source=result.origin client.user=result.user client.client_id=result.client_id "
        "throttled_by=result.throttled_by result.answers verdict result.notes"
    )
    result: WhyResult
    verdict: Sentences


def _listing(result: WhyResult) -> Listing:
    return Listing(
        noun="why",
        items="answers",
        data=document_of(WhyDocument(result, tuple(verdict(result)))),
        table=Table(
            columns=_COLUMNS,
            rows=[row for answer in result.answers for row in _rows(answer)],
            caption=f"{client_text(result.user, result.client_id)}, by {result.origin}",
        ),
    )


def _rows(answer: KeyAnswer) -> Iterator[list[Cell]]:
    """Yield one row per broker, or one row without figures where no broker reported any."""
    quota = answer.quota
    key = quota.key.name
    limit = format_limit(key, answer.limit)
    head: list[Cell] = [short_key(key), limit, "" if quota.entity is None else f"level {quota.level}: {quota.entity}"]
    if not answer.usages:
        yield [*head, "", "", "", ""]
    for number, usage in enumerate(answer.usages):
        used = format_share(share_used(usage.observed, answer.limit))
        figures = [usage.broker, format_rate(key, usage.observed), used, throttled_text(usage)]
        yield [*(["", "", ""] if number else head), *figures]
