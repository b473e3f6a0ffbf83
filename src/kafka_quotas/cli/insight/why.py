"""`kafka-quotas tree`, `why` and `doctor`: what wins for whom, whether quotas slow a client down, and what is odd."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Annotated, ClassVar

from kafka_quotas.cli.completion.values import complete_keys
from kafka_quotas.cli.framework.commands import EntityCommand, as_command
from kafka_quotas.cli.framework.option_groups import Without, option_info
from kafka_quotas.cli.framework.store_choice import print_static_note
from kafka_quotas.cli.options.entity import ClientNames
from kafka_quotas.cli.options.stores import (
    DeclaredFiles,
    ListingView,
    Policy,
    StoreOptions,
    UsageOptions,
    checked_files,
    store_for,
)
from kafka_quotas.cli.output.listing import TABLE_VIEW, Cell, columns, listed
from kafka_quotas.cli.output.plan_view import print_left_out
from kafka_quotas.cli.output.render import (
    DEFAULT_ROWS,
    client_text,
    folded,
    plain_value,
    print_listing,
    short_key,
    takes_every_letter,
    throttled_text,
    write,
)
from kafka_quotas.commands.declarative.reading import declared
from kafka_quotas.commands.insight.doctor import DoctorResult, doctor_of_files
from kafka_quotas.commands.insight.doctor import doctor as run_doctor
from kafka_quotas.commands.insight.usage import UsageReading
from kafka_quotas.commands.insight.why import KeyAnswer, TreeResult, WhyResult, client_groups
from kafka_quotas.commands.insight.why import tree as run_tree
from kafka_quotas.commands.insight.why import why as run_why
from kafka_quotas.commands.quotas.describe import known_groups
from kafka_quotas.commands.quotas.quota_status import QuotaStatus, StoredQuotaStatus
from kafka_quotas.core.described import Sentences
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import Entity, shown_name
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.model.value_format import (
    format_count,
    format_duration_ms,
    format_limit,
    format_quota,
    format_rate,
    format_share,
    format_throttle_time,
)
from kafka_quotas.core.resolution.effective import QuotaClient
from kafka_quotas.core.resolution.quota_resolver import bucket_of_tags, group_text
from kafka_quotas.core.resolution.usage import share_used, with_headroom

Key = Annotated[
    str | None, option_info("--key KEY", help="Only the tree of this quota key.", autocompletion=complete_keys)
]

_PIECES = {True: ("├── ", "└── ", "│   ", "    "), False: ("|-- ", "`-- ", "|   ", "    ")}
"""How branches are drawn: one that others follow, the last one, and what goes before the lines below each of them."""


@as_command(EntityCommand)
def tree(
    *,
    key: Key = None,
    named: ClientNames,
    policy: Policy = None,
    store: StoreOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Draw the stored quotas as the tree that Kafka looks through, and groups below.

    There is a tree per quota key. Each quota is marked: it wins, it applies to clients without a client-id only, it is
    shadowed (without effect) or ignored (brokers don't read it). With --user, --client or --ip only the quotas and
    groups of this client are drawn; a --user without --client is one with a client-id that nothing is stored for.
    """
    if key is not None and key not in QUOTA_KEYS:
        raise UsageError(f"unknown quota key: {key!r}", hint=f"the keys are {', '.join(QUOTA_KEYS)}")
    named.check()
    choice = store.choose()
    with closing(choice.open_existing()) as opened:
        groups = known_groups(opened.groups(), policy)
        client = QuotaClient(user=named.user, client_id=named.client, ip=named.ip)
        result = run_tree(opened, client, key=key, groups=groups)
    if output == TABLE_VIEW:
        pieces = _PIECES[takes_every_letter(sys.stdout)]
        lines = [*drawn(result.of_kafka, pieces=pieces)]
        if result.groups:
            lines += [*([""] if lines else []), "groups", *_below(_of_groups(result), "", pieces)]
        if lines:
            write("\n".join(lines), sys.stdout)
    else:
        rows = [
            (
                quota.key,
                quota.level,
                str(quota.entity),
                plain_value(quota.key, quota.limit),
                quota.status.value,
                None if quota.shadowed_by is None else str(quota.shadowed_by),
            )
            for quota in result.quotas
        ]
        columns_ = columns("key!, level>!, entity, value>!, status!, shadowed by")
        print_listing(listed("tree", result, columns_, rows), output)
    if output == TABLE_VIEW and len(result.quotas) > DEFAULT_ROWS:
        quotas = format_count(len(result.quotas), "quota", separator=",")
        write(f"note: {quotas}; --user, --client and --ip draw only what fits a client", sys.stderr)
    if not result.quotas:
        fits = "no stored quota fits this client" if result.about_client else "no quota is stored"
        write(f"note: {fits} in {result.store_url}", sys.stderr)
        print_static_note(result.store_url)
    if result.about_client and groups and not result.groups:
        write("note: this client is in no group", sys.stderr)


Branch = tuple[list[str], dict[object, "Branch"]]
"""The text of an entity or group, if it has one, and the branches below it."""


def drawn(quotas: Sequence[StoredQuotaStatus], *, pieces: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a tree per key, in the order in which Kafka looks."""
    for number, (key, of_key) in enumerate(groupby(quotas, key=lambda quota: quota.key)):
        if number:
            yield ""
        yield key
        root: Branch = ([], {})
        for quota in sorted(of_key, key=lambda quota: quota.entity.sort_key):
            branch, name = root, ""
            for part in quota.entity.parts:
                name = str(Entity(parts=(part,)))
                branch = branch[1].setdefault(name, ([], {}))
            level = "" if quota.level is None else f"level {quota.level}, "
            branch[0].append(f"{name}: {format_quota(quota.key, quota.limit)} ({level}{_mark(quota)})")
        yield from _below(root, "", pieces)


def _below(branch: Branch, indent: str, pieces: Sequence[str]) -> Iterator[str]:
    more, last, go_on, ended = pieces
    for left, (name, inner) in zip(range(len(branch[1]))[::-1], branch[1].items(), strict=True):
        yield f"{indent}{more if left else last}{next(iter(inner[0]), name)}"
        yield from _below(inner, indent + (go_on if left else ended), pieces)


def _of_groups(result: TreeResult) -> Branch:
    """Return the groups and their members as they are tried, those of a group behind the groups within it."""
    rates: dict[Entity, list[str]] = {}
    for quota in result.quotas:
        word = "guaranteed " if quota.level == "guaranteed" else ""
        rates.setdefault(quota.entity, []).append(f"{word}{quota.key} {format_quota(quota.key, quota.limit)}")
    branches: dict[str, Branch] = {"": ([], {})}
    for group in result.groups:
        texts = ", ".join(rates.get(Entity.of(group=group.name), ()))
        branch = branches.setdefault(group.name, ([], {}))
        branch[0].append(f"{shown_name(group.name)}{f': {texts}' if texts else ''}")
        branch[1].update({number: ([member], {}) for number, member in enumerate(group.members)})
        branches.setdefault(group.name.rpartition("/")[0], ([], {}))[1][group.name] = branch
    return branches[""]


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
        case QuotaStatus.HOLDS:
            return "holds every client of the group"


_COLUMNS = columns("quota!, limit>!, set on, broker, observed>!, used>!, throttled>!")


@as_command(EntityCommand)
def why(
    *,
    named: ClientNames,
    policy: Policy = None,
    source: UsageOptions,
    store: StoreOptions,
    output: ListingView = TABLE_VIEW,
) -> None:
    """Explain whether quotas slow a client down.

    For each quota key: what applies to the client, and the rate and throttle time of its bucket at each broker, from a
    running daemon or the brokers' own metrics. The last lines name the quota that held it back in the last minute, how
    often, how long, and the value that would end it. Without a store the one that the daemon follows is asked.

    A daemon says which group the client is in, whose limits hold it back, and which guaranteed rate keeps it from that;
    --ip names the client's address for groups that go by it. With --prometheus groups are those of --policy.
    """
    if named.user is None and named.client is None:
        raise UsageError("no client is named", hint="--user NAME, --client ID, or both")
    named.check()
    choice = store.choose()
    choice.check_exists()
    reading = source.read(choice)
    client = QuotaClient(user=named.user, client_id=named.client, ip=named.ip)
    with closing(store_for(choice, reading).open()) as opened:
        groups = client_groups(opened, source.source(choice), reading, policy, client)
        result = run_why(opened, reading, user=named.user, client_id=named.client, groups=groups)
    words, rows = tuple(verdict(result)), [row for answer in result.answers for row in _rows(answer)]
    caption = f"{client_text(result.user, result.client_id)}, by {result.origin}"
    listing = listed("why", WhyDocument(result, words), _COLUMNS, rows, caption=caption)
    print_listing(listing, output)
    if output.is_table and not output.columns:
        write("\n" + "\n".join(map(folded, words)), sys.stdout)
    for note in result.notes:
        write(note if note.startswith(" ") else f"note: {note}", sys.stderr)


def verdict(result: WhyResult) -> Iterator[str]:
    """Yield the answer in words, a line each."""
    who = client_text(result.user, result.client_id)
    culprit = result.culprit
    if culprit is None:
        yield from _innocent(result, who)
        yield from _groups_in_words(result)
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
        figure = f"{value:.0f}" if value == int(value) else f"{value:.6g}"
        yield (
            f"{key}={figure} ({format_rate(key, value)}) would end it at the present demand, with a fifth to "
            "spare; a client that was held back may ask for more"
        )
    yield from _groups_in_words(result)


def _groups_in_words(result: WhyResult) -> Iterator[str]:
    """Yield which group the client is in, and what its guaranteed rates do for it."""
    if not result.knows_groups:
        return
    if result.group is None:
        yield "it is in no group"
        return
    around = [name for name in accumulate(result.group.split("/"), "{}/{}".format) if name != result.group]
    within = f", within {' and '.join(reversed(around))}" if around else ""
    yield f"it is in group {result.group}{within}"
    for answer in result.answers:
        if answer.quota.level != "guaranteed":
            continue
        key, observed = answer.quota.key.name, max((usage.observed for usage in answer.usages), default=0.0)
        is_above = (answer.share or 0.0) >= 1
        above = "so limits of groups around it count" if is_above else "so no limit of a group around it counts"
        yield (
            f"group {answer.name} is guaranteed {format_quota(key, answer.limit or 0.0)} of {key} and uses "
            f"{format_rate(key, observed)}, {above}"
        )


def _throttled(answer: KeyAnswer) -> str:
    recent = answer.last_minute
    if recent is None or not recent.times:
        return f"throttled for {format_throttle_time(answer.throttle_ms)}"
    total = format_duration_ms(float(f"{recent.total_ms:.3g}"))
    held = f"throttled {format_count(recent.times, 'time')} for {total} in the last minute"
    return f"{held}, {format_share(recent.share)} of it{'' if answer.is_waiting else '; not at this instant'}"


def _innocent(result: WhyResult, who: str) -> Iterator[str]:
    limits = [answer for answer in result.answers if answer.quota.level != "guaranteed"]
    shares = [answer for answer in limits if answer.share is not None]
    if not any(answer.usages for answer in result.answers):
        yield f"not known: no rates were seen for {who}"
        return
    most = max(shares, key=lambda answer: answer.share or 0.0, default=None)
    used = "it has no limit" if most is None else f"at most {format_share(most.share)} of {most.quota.key.name} is used"
    knows = any(answer.last_minute is not None for answer in result.answers)
    yield f"no: no quota {f'held {who} back in the last minute' if knows else f'holds {who} back now'}; {used}"


@dataclass(frozen=True, slots=True)
class WhyDocument:
    """The answers and the verdict in words."""

    DOCUMENT: ClassVar = (
        "store=result.store_url source=result.origin client.user=result.user client.client_id=result.client_id "
        "group=result.group "
        "throttled_by=result.throttled_by result.answers verdict result.notes"
    )
    result: WhyResult
    verdict: Sentences


def _rows(answer: KeyAnswer) -> Iterator[list[Cell]]:
    quota, key, set_on = answer.quota, answer.quota.key.name, ""
    if quota.entity is not None and quota.bucket is not None:
        set_on = group_text(bucket_of_tags(*quota.bucket)) or f"level {quota.level}: {quota.entity}"
    head: list[Cell] = [short_key(key), format_limit(key, answer.limit), set_on]
    if not answer.usages:
        yield [*head, "", "", "", ""]
    for number, usage in enumerate(answer.usages):
        used = format_share(share_used(usage.observed, answer.limit))
        figures = [usage.broker, format_rate(key, usage.observed), used, throttled_text(usage)]
        yield [*(["", "", ""] if number else head), *figures]


def doctor(
    files: DeclaredFiles = None,
    *,
    policy: Policy = None,
    source: Annotated[UsageOptions, Without("metric_names")],
    store: StoreOptions,
    output: ListingView = TABLE_VIEW,
) -> int:
    """Check quotas for problems: how bad each is, and what to do.

    They are those of a store, or those that files declare, our own or another tool's, which needs no store.

    Looked for: quotas without effect, names that are easily confused, one address under two names, values that stop
    clients or are below one batch or fetch, request percentages above the brokers' capacity; in a cluster also quota
    callbacks, replication throttles left behind by a reassignment, keys that a broker is too old for, and empty
    znodes. The exit code is 1 where a finding is an error, else 0.

    In groups: those that don't fit together, those without members, members that earlier ones leave no client, and
    members that fit nobody, by the stored entities and the figures of --control or --prometheus, if one is given.
    """
    reading = source.read(store.choose()) if source.named else None
    if files:
        result = _files_checked(files, store, policy, reading)
    else:
        choice = store.choose()
        with closing(choice.open_existing()) as opened:
            result = run_doctor(opened, policy=policy, reading=reading)
    if result.findings or not output.is_table:
        rows = [(each.severity.value, each.about, each.sentence, each.remedy) for each in result.findings]
        columns_ = columns("severity!, about, finding, remedy")
        print_listing(listed("doctor", result, columns_, rows), output)
    for line in result.not_looked_at:
        write(f"note: {line}", sys.stderr)
    found = format_count(len(result.findings), "finding") if result.findings else "no problem"
    write(f"note: {found} among {format_count(result.entries, 'entity')} in {result.store_url}", sys.stderr)
    if not files:
        print_static_note(result.store_url)
    return int(result.has_errors)


def _files_checked(
    files: list[str], store: StoreOptions, policy: Path | None, reading: UsageReading | None
) -> DoctorResult:
    if store.names_store:
        raise UsageError("doctor checks files or a store", hint="leave one of them out; diff compares the two")
    declared_quotas = declared(checked_files(files, "doctor"))
    print_left_out(declared_quotas.left_out)
    return doctor_of_files(files, declared_quotas, policy=policy, reading=reading)
