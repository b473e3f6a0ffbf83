"""What `export`, `validate`, `diff` and `apply` share: options, and one command over several contexts.

Contexts come one after the other, and no failure hides the result of another context.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

from kafka_quotas.cli.completion.values import complete_contexts
from kafka_quotas.cli.framework.help_page import STORE_HEADING
from kafka_quotas.cli.framework.option_groups import Without, flag, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import StoreChoice
from kafka_quotas.cli.options.stores import StoreOptions, checked_files
from kafka_quotas.cli.output.listing import Column, Json, Listing, View, listed
from kafka_quotas.cli.output.render import print_listing, shown_cell, write
from kafka_quotas.cli.output.schemas.catalogue import CONTEXTS_SUFFIX, find_schema
from kafka_quotas.commands.declarative.apply import DEFAULT_PRUNE_LIMIT, DesiredState
from kafka_quotas.core.errors import KafkaQuotasError, UsageError, VerdictError

Values = Annotated[
    list[Path] | None,
    option_info(
        "--values FILE",
        help="A file of values, defaults and entries that override the others, for example one per environment. May be "
        "repeated; the last one wins.",
    ),
]
Selectors = Annotated[
    list[str] | None,
    option_info(
        "--selector TYPE[=PATTERN]",
        help="Only these are owned: user=team-a-*, client-id=web, user-default, ip, group=pay*. All else is left "
        "alone. May be repeated.",
    ),
]
PolicyFile = Annotated[
    Path | None,
    option_info(
        "--policy FILE",
        help="The daemon's policy file that has the groups, for a store that can't hold any; `apply` replaces "
        "its [[group]] sections alone.",
    ),
]


@option_group("Desired state")
class DesiredOptions:
    """The options that say what a store should hold, beside the files."""

    values: Values = None
    selectors: Selectors = None
    policy: PolicyFile = None
    prune: bool = flag("--prune", help="Remove stored quotas and groups that are not declared.")
    prune_limit: float = option(
        "--prune-limit PERCENT",
        default=DEFAULT_PRUNE_LIMIT,
        help="Refuse to remove more than this share of the stored entities, quotas or groups.",
    )

    def state(self, files: list[str] | None, command: str) -> DesiredState:
        """Return what the files and these options declare."""
        paths, limit = checked_files(files, command), self.prune_limit
        if not 0 <= limit <= 100:
            raise UsageError(
                f"--prune-limit is {limit:g}", hint=f"0 to 100 per cent; without it, it is {DEFAULT_PRUNE_LIMIT:g}"
            )
        return DesiredState(
            paths=paths,
            values=self.values or (),
            selectors=self.selectors or (),
            prune=self.prune,
            prune_limit=limit,
            policy=self.policy,
        )


T = TypeVar("T")

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


def run_each(
    choices: Sequence[StoreChoice],
    work: Callable[[StoreChoice], T],
    *,
    noun: str,
    listing: Callable[[T], Listing],
    report: Callable[[T], None],
    check: Callable[[T], None] = lambda _: None,
    output: View,
) -> list[T]:
    """Do the work for each context, show its result, of several under its name, and return all results.

    `report` prints the only result, or one of several for people, and `listing` lists it beside others for machines.
    After that `check` raises a `KafkaQuotasError` if it is a failure. The others are done all the same.
    """
    several = len(choices) > 1
    at_once = not several or (output.is_table and not output.columns)
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
                listings.append((name, listing(result)))
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
        apart=True,
    )
