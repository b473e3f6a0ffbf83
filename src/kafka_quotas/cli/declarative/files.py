"""`kafka-quotas export`, `import` and `validate`, and the options of what files declare."""

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import flag, option, option_group, option_info
from kafka_quotas.cli.options.stores import DeclaredFiles, ListingView, StoreOptions, checked_files
from kafka_quotas.cli.output.listing import TABLE_VIEW, columns, listed
from kafka_quotas.cli.output.plan_view import print_left_out
from kafka_quotas.cli.output.render import DEFAULT_ROWS, print_listing, write
from kafka_quotas.commands.declarative.apply import DEFAULT_PRUNE_LIMIT, DesiredState
from kafka_quotas.commands.declarative.apply import export as run_export
from kafka_quotas.commands.declarative.apply import validate as run_validate
from kafka_quotas.commands.declarative.reading import declared, form_by_name
from kafka_quotas.commands.other_tools.formats import Tool, tool_text
from kafka_quotas.core.errors import UsageError, VerdictError, near_hint
from kafka_quotas.core.model.value_format import format_count
from kafka_quotas.core.quota_files.declarations import json_schema
from kafka_quotas.core.quota_files.writer import FileFormat, file_text, is_refused
from kafka_quotas.stores import save_text

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


Out = Annotated[
    Path | None,
    option_info("--out FILE", rich_help_panel=OUTPUT_HEADING, help="Write to this file instead of standard output."),
]
Form = Annotated[
    str | None,
    option_info(
        "--format FORM",
        help="yaml, json or toml, or a tool's: kafka-configs, strimzi, terraform, jikkou, rpk. Default: by the name of "
        "the file, else yaml.",
        autocompletion=lambda: [*FileFormat, *Tool],
    ),
]
OfTool = Annotated[
    Tool | None,
    option_info(
        "--format TOOL",
        help="The tool that the files are of: kafka-configs, strimzi, terraform, jikkou or rpk. Default: what they "
        "look like.",
    ),
]
Schema = Annotated[bool, option_info("--schema", help="Print the JSON schema of files of quotas, and stop.")]


def export(
    *,
    out: Out = None,
    form: Form = None,
    selectors: Selectors = None,
    policy: PolicyFile = None,
    store: StoreOptions,
) -> None:
    """Write stored quotas and groups as a file that apply reads, or quotas as one of another tool.

    Entities come sorted, one per line, so that two exports compare well. Applying an export elsewhere and exporting
    there gives the same file. Values that this program refuses to send, such as 0, are marked 'invalid: true'. What
    another tool can't express is listed, and nothing is written.
    """
    choice = store.choose()
    chosen = _form(form, out)
    with closing(choice.open_existing()) as opened:
        entries, groups = run_export(opened, selectors=selectors or (), policy=policy)
    text = (
        [tool_text(dict(entries), chosen, groups)] if isinstance(chosen, Tool) else file_text(entries, chosen, groups)
    )
    if out is None:
        sys.stdout.writelines(text)
    else:
        save_text(out, text)
        of_groups = f" and {format_count(len(groups), 'group')}" if groups else ""
        write(f"note: {format_count(len(entries), 'entity')}{of_groups} written to {out}", sys.stderr)
    invalid = sum(is_refused(*entry) for entry in entries)
    if invalid:
        write(f"note: {invalid} entities have values that apply takes with --allow-invalid only", sys.stderr)


def _form(name: str | None, out: Path | None) -> FileFormat | Tool:
    known = {str(form): form for form in (*FileFormat, *Tool)}
    if name is not None and name not in known:
        raise UsageError(
            f"unknown format: {name!r}", hint=near_hint(name, known, otherwise=f"one of {', '.join(known)}")
        )
    chosen = known[name] if name is not None else form_by_name(out or Path("quotas.yaml"))
    if chosen is None:
        raise UsageError(
            f"the name {out} does not show the format", hint="name it .yaml, .json, .toml, .tf or .sh, or add --format"
        )
    return chosen


def import_(files: DeclaredFiles = None, *, tool: OfTool = None) -> None:
    """Print quotas of other tools' files as a file that apply reads.

    It reads scripts of kafka-configs, manifests of Strimzi and Jikkou, Terraform files, and what rpk cluster quotas
    prints. What only the other tool knows, such as a variable, is refused; what Kafka has no quota for is listed on
    standard error.
    """
    found = declared(checked_files(files, "import"), tool=tool)
    entries = ((entry.entity, entry.quotas) for entry in found.entries)
    sys.stdout.writelines(file_text(entries, FileFormat.YAML, found.groups))
    print_left_out(found.left_out)


def validate(
    files: DeclaredFiles = None, *, values: Values = None, schema: Schema = False, output: ListingView = TABLE_VIEW
) -> None:
    """Check files of quotas, ours or another tool's, without a store.

    Every problem is listed with its file and line. No server is asked: what else a store rejects shows in diff and
    in apply --dry-run.
    """
    if schema:
        if files:
            raise UsageError("--schema prints the schema alone", hint="leave the files out")
        write(json.dumps(json_schema(), indent=2), sys.stdout)
        return
    result = run_validate(checked_files(files, "validate"), values=values or ())
    if not output.is_table or output.columns or result.problems:
        view = replace(output, limit=output.limit_or(DEFAULT_ROWS)) if output.is_table else output
        rows = [(str(problem.location), problem.message, problem.hint) for problem in result.problems]
        print_listing(listed("validate", result, columns("where, problem, hint"), rows), view)
    else:
        of_groups = f", {format_count(result.groups, 'group')}" if result.groups else ""
        counts = f"{format_count(result.files, 'file')}, {format_count(result.entities, 'entity')}{of_groups}"
        write(f"{counts}: OK", sys.stdout)
    if result.invalid_entries:
        marked = format_count(result.invalid_entries, "entity")
        write(f"note: {marked} marked invalid, which apply takes with --allow-invalid only", sys.stderr)
    print_left_out(result.left_out)
    if result.unused_values:
        write(f"note: no entry asks for the values {', '.join(result.unused_values)}", sys.stderr)
    if result.problems:
        raise VerdictError(f"{format_count(len(result.problems), 'problem')} in {format_count(result.files, 'file')}")
