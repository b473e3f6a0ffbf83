"""`kafka-quotas diff` and `apply`: what differs between files and a store, and bringing the store to the files.

Several contexts come one after the other, and no failure hides the result of another context.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kafka_quotas.cli.completion.values import complete_contexts
from kafka_quotas.cli.declarative.files import DesiredOptions
from kafka_quotas.cli.framework.commands import service
from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING, OUTPUT_HEADING, STORE_HEADING
from kafka_quotas.cli.framework.option_groups import Without, flag, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import StoreChoice
from kafka_quotas.cli.options.stores import ChangesView, DeclaredFiles, Reason, StoreOptions, Yes, recorder_for
from kafka_quotas.cli.output.listing import TABLE_VIEW, Column, Json, Listing, Output, View, listed
from kafka_quotas.cli.output.plan_view import (
    CHANGE_COLUMNS,
    change_rows,
    changes_table,
    markdown_comment,
    print_radius,
    print_unmanaged,
    summary,
)
from kafka_quotas.cli.output.render import (
    DEFAULT_ROWS,
    print_listing,
    print_table,
    progress_bar,
    shown_cell,
    write,
)
from kafka_quotas.cli.output.schemas.catalogue import CONTEXTS_SUFFIX, find_schema
from kafka_quotas.commands.declarative.apply import ApplyResult, DesiredState, DiffResult, HowToApply, apply_plan
from kafka_quotas.commands.declarative.apply import apply as run_apply
from kafka_quotas.commands.declarative.apply import diff as run_diff
from kafka_quotas.commands.declarative.reading import read_plan, write_plan
from kafka_quotas.core.changes.blast_radius import BlastRadius
from kafka_quotas.core.changes.plan import KeptPlan
from kafka_quotas.core.errors import KafkaQuotasError, StoreUnreachableError, UsageError, VerdictError
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.stores import JournalWriter, Store

if TYPE_CHECKING:
    from kafka_quotas.commands.declarative.reconcile import Round

T = TypeVar("T", ApplyResult, DiffResult)

StoreWithoutContext = Annotated[StoreOptions, Without("context")]


@option_group(STORE_HEADING)
class ContextsOptions:
    """The option that names one context or several."""

    contexts: list[str] | None = option(
        "--context NAME",
        help="The store and login of a context, see 'kafka-quotas context'; repeated: of several, one after the other. "
        "Default: the context in use.",
        autocompletion=complete_contexts,
    )

    def choose(self, store: StoreOptions, policy: Path | None = None) -> list[StoreChoice]:
        """Choose the store of each context, or the one that the other options name.

        With a policy file there is one alone.
        """
        names: list[str | None] = [*self.contexts] if self.contexts else [None]
        if len(names) > 1 and policy is not None:
            raise UsageError("--policy is the file of one daemon", hint="name one context")
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"--context {name} is named twice")
        return [replace(store, context=name).choose() for name in names]


SHORTEST_S = 1.0


_FAILURES_SHOWN = 1000

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Files of quotas, ours or another tool's, folders of them, - for a pipe, or a plan that diff kept.",
    ),
]


@option_group(OPTIONS_HEADING)
class ApplyOptions:
    """The options about how a store is brought to its files."""

    allow_invalid: bool = flag(
        "--allow-invalid", help="Accept entries marked 'invalid: true', such as limits of 0, if the store accepts them."
    )
    dry_run: bool = flag(
        "--dry-run", help="Check everything, here and at the broker, show who is affected, write nothing."
    )
    no_wait: bool = flag("--no-wait", help="Don't read changes back from Kafka until they are visible.")
    reason: Reason = None
    yes: Yes = False
    watch: float | None = option(
        "--watch SECONDS", help="Repeat it at this interval, reading the files again each time, until it is stopped."
    )
    metrics: str | None = option(
        "--metrics HOST:PORT", help="With --watch: serve the drift found as Prometheus metrics at /metrics."
    )


@service("APPLY")
def apply(
    files: Files = None,
    *,
    desired: DesiredOptions,
    how: ApplyOptions,
    named: ContextsOptions,
    store: StoreWithoutContext,
    output: ChangesView = TABLE_VIEW,
) -> None:
    """Bring a store to what files of quotas declare, or carry out a plan.

    Every entity is changed by one merged entry and is never without its quotas in between. Groups change first, all of
    them or none, in the store or in the file that --policy names. What is not declared stays,
    unless --prune is given. What fails is listed; running it again finishes the job. Several contexts are changed
    one after the other; one that fails does not stop the others.
    """
    desired_state = desired.state(files, "apply")
    plan = read_plan(desired_state.paths)
    _refuse_beside_plan(plan, desired_state, how.watch)
    choices = named.choose(store, desired.policy)
    if len(choices) > 1 and (plan is not None or how.watch is not None):
        what = "a plan is of one store" if plan is not None else "--watch is about one store"
        raise UsageError(what, hint="name one context")
    recorders = [recorder_for("apply", reason=how.reason) for _ in choices]  # each entry of the journal has its own id
    if how.metrics is not None and how.watch is None:
        raise UsageError("--metrics needs --watch", hint="add --watch 30, for example")
    for each in choices:  # all of them before the first one changes
        each.confirm_change(yes=how.yes or how.dry_run)
    if how.watch is not None:
        with closing(choices[0].open(allow_invalid=how.allow_invalid, wait=not how.no_wait)) as opened:
            _reconcile(opened, desired_state, how, recorders[0], interval_s=how.watch)
        return
    unused = iter(recorders)
    run_each(
        choices,
        lambda each: _applied(each, desired_state, plan, next(unused), how),
        noun="apply",
        report=partial(_report, choice=choices[0], output=output),
        check=report_failures,
        output=output,
    )


def _applied(
    choice: StoreChoice,
    desired_state: DesiredState,
    plan: KeptPlan | None,
    recorder: JournalWriter,
    how: ApplyOptions,
) -> ApplyResult:
    with (
        closing(choice.open(allow_invalid=how.allow_invalid, wait=not how.no_wait)) as store,
        progress_bar("checking" if how.dry_run else "applying") as progress,
    ):
        carrying = HowToApply(
            dry_run=how.dry_run, allow_invalid=how.allow_invalid, progress=progress, recorder=recorder
        )
        if plan is None:
            return run_apply(store, desired_state, carrying)
        return apply_plan(store, plan, carrying, prune_limit=desired_state.prune_limit, policy=desired_state.policy)


def _reconcile(
    store: Store, desired_state: DesiredState, how: ApplyOptions, recorder: JournalWriter, *, interval_s: float
) -> None:
    """Bring the store to its files every `interval_s` seconds until a signal ends it.

    Every round that changes something or fails writes a line to standard error.
    """
    # Only --watch needs it: its HTTP server loads most of the daemon, which would slow every diff and apply.
    from kafka_quotas.commands.declarative.reconcile import Reconciler, Round, run_reconciler  # noqa: PLC0415
    from kafka_quotas.enforcement import parse_address  # noqa: PLC0415

    if not interval_s >= SHORTEST_S:
        raise UsageError(f"--watch {interval_s:g} is too often", hint="at least 1 second, for example --watch 30")
    write(f"note: bringing {store.url} to what the files declare, every {interval_s:g} s", sys.stderr)

    def report(done: Round) -> None:
        for line in round_lines(done):
            write(f"round {done.number}: {line}", sys.stderr)
        sys.stderr.flush()

    run_reconciler(
        Reconciler(store, desired_state, recorder=recorder, dry_run=how.dry_run, allow_invalid=how.allow_invalid),
        interval_s=interval_s,
        metrics=None if how.metrics is None else parse_address(how.metrics, may_be_zero=True),
        report=report,
        serving=lambda address: write(f"note: metrics at http://{address}/metrics", sys.stderr),
    )


def round_lines(done: "Round") -> list[str]:
    """Return a line for each thing of a round that is worth reporting."""
    if done.error is not None:
        return [f"nothing was changed: {done.error.message}"]
    lines = [f"{done.undone} temporary quotas taken back"] if done.undone else []
    result = done.result
    if result is None:
        return lines
    verb = "would change" if result.dry_run else "changed"
    for count, what in ((len(result.made), "quota"), (len(result.declared.groups.changed), "group")):
        lines += [f"{verb} {format_count(count, what)}"] if count else []
    if not result.changes and done.number == 1 and not result.failures:
        lines.append("up to date")
    return lines + [f"failed: {failure.entity}: {failure.error.message}" for failure in result.failures]


def _refuse_beside_plan(plan: KeptPlan | None, desired_state: DesiredState, watch: float | None) -> None:
    if plan is None:
        return
    decided = {
        "--values": desired_state.values,
        "--selector": desired_state.selectors,
        "--prune": desired_state.prune,
        "--watch": watch is not None,
    }
    names = [name for name, value in decided.items() if value]
    if names:
        raise UsageError(f"{' and '.join(names)}: not with a plan", hint="give them to diff, which makes the plan")


def _print_changes(noun: str, result: ApplyResult | DiffResult, output: View, radius: BlastRadius | None) -> None:
    """Print what changes, and for people below it for whom."""
    changes, groups, limit = result.changes, result.declared.groups, output.limit_or(DEFAULT_ROWS)
    if not output.is_table:
        print_listing(_listing(noun, result), output)
    elif changes:
        print_table(changes_table(changes, limit=limit), sys.stdout)
        if radius is not None:
            print_radius(radius, groups, limit=limit)
            write(f"\n{summary(changes, radius, groups)}", sys.stdout)
    if groups.changes and output.form is Output.CSV:
        write("note: CSV has no groups; --output json has what changes of them", sys.stderr)


def _report(result: ApplyResult, choice: StoreChoice, output: View) -> None:
    groups = result.declared.groups
    _print_changes("apply", result, output, result.radius)
    if output.is_table:
        for line in _summary(result):
            write(line, sys.stdout)
    if groups.changes and groups.place != result.store_url and not result.dry_run:
        write(f"note: kafka-quotas daemon reload puts {groups.place} in force", sys.stderr)
    print_unmanaged(result.declared)
    if not choice.chosen:
        write(f"note: the store is the local one in {choice.address.path}; no broker was changed", sys.stderr)


def _summary(result: ApplyResult) -> list[str]:
    done, groups = "Dry run: would make" if result.dry_run else "Made", result.declared.groups
    lines = []
    if result.made or result.failures:
        entities = format_count(len({change.entity for change in result.made}), "entity")
        lines.append(f"{done} {format_count(len(result.made), 'change')} to {entities} in {result.store_url}.")
    if groups.changes:
        changed = format_count(len(groups.changed), "group")
        lines.append(f"{done} {format_count(len(groups.changes), 'change')} to {changed} in {groups.place}.")
    return lines or [f"Nothing to change in {result.store_url}."]


def report_failures(result: ApplyResult) -> None:
    """Report every failure on standard error, up to a maximum, and end with a verdict."""
    for failure in result.failures[:_FAILURES_SHOWN]:
        write(f"failed: {failure.entity}: {failure.error.message}", sys.stderr)
    if len(result.failures) > _FAILURES_SHOWN:
        write(f"failed: and {len(result.failures) - _FAILURES_SHOWN} more; --output json lists all", sys.stderr)
    if result.failures:
        total = len({failure.entity for failure in result.failures} | {change.entity for change in result.made})
        lost = any(isinstance(failure.error, StoreUnreachableError) for failure in result.failures)
        next_step = "run it again: " if lost else "change what was refused; "
        hint = result.failures[0].error.hint or f"{next_step}what is done already is left as it is"
        raise VerdictError(f"{len(result.failures)} of {total} entities failed", hint=hint)


DIFFERENT = 3

ExitCode = Annotated[bool, option_info("--exit-code", help="End with 3 when something differs.")]
PlanFile = Annotated[
    Path | None,
    option_info(
        "--out FILE.json",
        rich_help_panel=OUTPUT_HEADING,
        help="Keep the plan in this file; apply carries it out unless the store has changed.",
    ),
]


def diff(
    files: DeclaredFiles = None,
    *,
    desired: DesiredOptions,
    out: PlanFile = None,
    exit_code: ExitCode = False,
    named: ContextsOptions,
    store: StoreWithoutContext,
    output: ChangesView = TABLE_VIEW,
) -> None:
    """Show what differs between files of quotas and a store, and for whom.

    Below the quotas that change it lists the clients whose effective quota changes, because another entity wins or
    another limit applies, and those whose group or its limits change; --output markdown makes it a comment for a pull
    request. Nothing is written to the store. With several contexts each result is listed under its name, and the exit
    code is 1 if any of them failed.
    """
    desired_state = desired.state(files, "diff")
    choices = named.choose(store, desired.policy)
    if len(choices) > 1 and out is not None:
        raise UsageError("--out keeps the plan of one store", hint="name one context")
    report = partial(_report_differences, output=output)
    work = partial(_differences, desired_state, out)
    results = run_each(choices, work, noun="diff", report=report, output=output)
    if exit_code and any(result.changes for result in results):
        raise typer.Exit(DIFFERENT)


def _differences(desired_state: DesiredState, out: Path | None, choice: StoreChoice) -> DiffResult:
    with closing(choice.open()) as opened:
        result = run_diff(opened, desired_state)
    if out is not None:
        plan = result.declared.plan
        write_plan(out, KeptPlan(plan=plan, store_url=result.store_url, groups=result.declared.groups.kept()))
        write(f"note: plan kept in {out}; kafka-quotas apply {out} carries it out", sys.stderr)
    return result


def _report_differences(result: DiffResult, output: View) -> None:
    if output.form is Output.MARKDOWN and not output.columns:
        write(markdown_comment(result, limit=output.limit_or(DEFAULT_ROWS)), sys.stdout)
    else:
        _print_changes("diff", result, output, result.radius)
    print_unmanaged(result.declared)
    if not result.changes:
        write(f"note: no differences from {result.store_url}", sys.stderr)


def _listing(noun: str, result: ApplyResult | DiffResult) -> Listing:
    return listed(noun, result, CHANGE_COLUMNS, change_rows(result.changes))


def run_each(
    choices: Sequence[StoreChoice],
    work: Callable[[StoreChoice], T],
    *,
    noun: str,
    report: Callable[[T], None],
    check: Callable[[T], None] = lambda _: None,
    output: View,
) -> list[T]:
    """Do the work for each context, show its result, of several under its name, and return all results.

    `report` prints the only result, or one of several for people; machines get them all in one listing. After that
    `check` raises a `KafkaQuotasError` if it is a failure. The others are done all the same.
    """
    several = len(choices) > 1
    at_once = not several or output.is_table
    results: list[T] = []
    failed: list[KafkaQuotasError] = []
    listings: list[tuple[str, Listing | KafkaQuotasError]] = []
    for number, choice in enumerate(choices):
        name = str(choice.context_name.value)
        if several and at_once:
            write(f"{'' if number == 0 else chr(10)}{name}: {shown_cell(str(choice.address))}", sys.stdout)
            sys.stdout.flush()  # what follows on standard error belongs below it
        try:
            result = work(choice)
            results.append(result)
            if at_once:
                report(result)
            else:
                listings.append((name, _listing(noun, result)))
            check(result)
        except KafkaQuotasError as error:
            if not several:
                raise
            failed.append(error)
            if not at_once and (not listings or listings[-1][0] != name):
                listings.append((name, error))
            write(f"error: {name}: {shown_cell(error.message)}", sys.stderr)
    if listings:
        print_listing(_joined(listings, noun), output)
    if failed:
        hint = next((error.hint for error in failed if error.hint), None)
        raise VerdictError(f"{len(failed)} of {len(choices)} contexts failed", hint=hint)
    return results


def _joined(listings: Sequence[tuple[str, Listing | KafkaQuotasError]], noun: str) -> Listing:
    found = [(name, each) for name, each in listings if isinstance(each, Listing)]
    fields = find_schema(noun).fields
    documents: list[Json] = [
        {"context": name, "error": None, **each.data}
        if isinstance(each, Listing)
        else {"context": name, "error": {"message": each.message, "hint": each.hint}, **dict.fromkeys(fields)}
        for name, each in listings
    ]
    columns = found[0][1].table.columns if found else ()
    return listed(
        f"{noun}{CONTEXTS_SUFFIX}",
        {"contexts": documents},
        (Column(title="context", whole=True), *columns),
        [(name, *row) for name, each in found for row in each.table.rows],
    )
