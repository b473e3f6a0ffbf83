"""The options of `load-test`: what is put under load and how it is reached, and the output of the result.

Invariants: every file is written in a scratch folder first and moves to its place when all are complete, so a failed
write leaves none of the new files; where one of several outputs fails, the others are written and the error names it.
Files of an earlier run with the same names are replaced, others stay.
"""

import errno
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from kafka_quotas import loadtest
from kafka_quotas.cli.charts.html_page import page_html
from kafka_quotas.cli.charts.plot import check_plot_targets, save_plot
from kafka_quotas.cli.framework.help_page import OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import flag, option, option_group, option_info
from kafka_quotas.cli.framework.store_choice import COMMAND_CONFIG_VARIABLE
from kafka_quotas.cli.load_test.views.charts import load_series
from kafka_quotas.cli.load_test.views.view import load_listing, marked, print_load, verdict_line
from kafka_quotas.cli.options.stores import CommandConfig, OutputForm
from kafka_quotas.cli.options.windows import ONLY_CLIENTS, WindowOptions, WindowSettings
from kafka_quotas.cli.output.listing import Output, json_text
from kafka_quotas.cli.output.render import envelope, write
from kafka_quotas.commands.load_test.request import ScenarioResult
from kafka_quotas.commands.load_test.target import LoadTarget
from kafka_quotas.core.errors import INTERRUPTED, KafkaQuotasError, StoreRefusedError, UsageError
from kafka_quotas.core.extras import install_extra, install_libraries
from kafka_quotas.core.formats.documents import read_properties
from kafka_quotas.core.model.value_format import format_count, format_duration_us
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.loadtest import ClientName, default_journal_folder
from kafka_quotas.stores import StoreSettings, save_text

JournalFolder = Annotated[
    Path | None,
    option_info(
        "--journal-dir DIR",
        help="Where the journals of running tests are, from which 'load-test restore' puts back what a killed run "
        "changed. Default: "
        "load-test in your state folder.",
    ),
]


@option_group("Connection and login")
class _CredentialOptions:
    properties: list[str] | None = option(
        "-X KEY=VALUE",
        help="A client property by librdkafka's name, or of a login by Kafka's own; may be repeated, and wins over the "
        "tool's.",
    )
    config: Path | None = option("--config FILE", help="A file of such properties; -X wins over it.")
    passwords: Path | None = option("--passwords FILE", help="SASL passwords, a line USER=PASSWORD for each user.")

    def client_properties(self) -> dict[str, str]:
        """Return the properties of `-X` over those of the file."""
        properties = read_properties(self.config) if self.config else {}
        for pair in self.properties or ():
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"not a property: {pair!r}", hint="write -X KEY=VALUE")
            properties[key.strip()] = value.strip()
        return properties


@option_group("What a run may change")
class _ChangeOptions:
    yes: bool = flag("--yes", "-y", help="Don't ask before topics are made on a cluster, or flooded.")
    journal_dir: JournalFolder = None

    @property
    def journal_folder(self) -> Path:
        """The folder of the journals of running tests."""
        return self.journal_dir or default_journal_folder()


@option_group("Target")
class TargetOptions:
    """The options about the target of a run."""

    cluster: LoadTarget
    store: str | None = option(
        "--store URL",
        help="The store of the quotas, which judge the clients, and where they are set and put back; without it the "
        "cluster itself: zk://...",
    )
    command_config: CommandConfig = None
    credentials: _CredentialOptions
    change: _ChangeOptions

    def load_target(self) -> LoadTarget:
        """Parse all options, once, into a target."""
        if self.store is not None and self.cluster.bootstrap is None:
            raise UsageError("--store says where a cluster's quotas are", hint="name it with --bootstrap-server")
        properties = self.credentials.client_properties()
        passwords = read_properties(self.credentials.passwords) if self.credentials.passwords else {}
        variable = os.environ.get(COMMAND_CONFIG_VARIABLE)
        config = self.command_config or (Path(variable) if variable else None)
        return replace(
            self.cluster,
            store_url=self.store,
            settings=settings_of(config),
            command_config=config,
            properties=properties,
            credentials=lambda name: credentials_of(name, properties, passwords),
        )


@option_group("Quota windows")
class LoadWindowOptions(WindowOptions):
    """The options about quota windows, which the target's brokers are asked for if none is given."""

    def given(self, target: LoadTarget) -> WindowSettings | None:
        """Return the windows of the options or the brokers, None for a target that takes any.

        Where the brokers refuse an answer, or end the connection of who asks without the login of the load's clients,
        Kafka's default is assumed, with a note on standard error.
        """
        from kafka_quotas.stores import LostAnswerError  # noqa: PLC0415 - only with a cluster

        is_theirs = target.bootstrap is not None and not target.through_daemon
        settings = self.settings()
        is_whole = all(
            None not in window
            for window in (
                (self.quota_window_num, self.quota_window_size_seconds),
                (self.controller_quota_window_num, self.controller_quota_window_size_seconds),
            )
            if any(window)
        )
        if not is_theirs or (is_whole and not settings.untouched):
            return None if settings.untouched else settings
        try:
            # Where quotas are set, which may have another login than the clients.
            scheme, _, servers = (target.store_url or "").partition("://")
            asked = servers if scheme == "kafka" else target.bootstrap
            return self.settings(servers=asked, command_config=target.command_config)
        except (StoreRefusedError, LostAnswerError) as error:
            window = f"{settings.client.samples} x {settings.client.window_s} s"
            write(
                f"note: the quota window is not known, and Kafka's default of {window} is assumed: {error.message}; "
                "--quota-window-num and --quota-window-size-seconds name another",
                sys.stderr,
            )
            return settings


ClientWindow = Annotated[LoadWindowOptions, ONLY_CLIENTS]


def settings_of(command_config: Path | None) -> StoreSettings:
    """Return the settings to administer a cluster with."""
    return StoreSettings(client_properties=read_properties(command_config) if command_config else {})


def credentials_of(
    name: ClientName, properties: Mapping[str, str], passwords: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the client properties that authenticate a connection as this user."""
    if name.user in (None, ANONYMOUS):
        return ()
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        raise UsageError(
            f"user {name.user} can't be recognised on a plaintext connection, where everybody is ANONYMOUS",
            hint="give -X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN and --passwords FILE",
        )
    if not protocol.startswith("sasl"):
        return ()
    password = passwords.get(name.user or "", properties.get("sasl.password"))
    if password is None:
        raise UsageError(
            f"user {name.user} has no password",
            hint="give --passwords FILE with lines USER=PASSWORD, or -X sasl.password=..",
        )
    return (("sasl.username", name.user or ""), ("sasl.password", password))


def make_folder(folder: Path) -> None:
    """Create the folder and check that it can be written into."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise KafkaQuotasError(
            f"can't make the folder {folder}, or write into it: {error.strerror or error}",
            hint="name another one with --out",
        ) from error


REPORT_FILE = "report.html"
PLOT_FILE = "run.png"


@contextmanager
def written_together(folder: Path) -> Iterator[Path]:
    """Yield a scratch folder whose files move into `folder` when the context ends without an error."""
    try:
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder, ignore_cleanup_errors=True) as name:
            yield Path(name)
            lacking = []
            for path in sorted(Path(name).iterdir()):
                try:
                    path.replace(folder / path.name)
                except OSError as error:
                    lacking.append(f"{path.name} ({error.strerror or error})")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise KafkaQuotasError(
            f"can't keep the run in {folder}: {reason}; nothing of it was kept",
            hint="make room, or name another folder with --out" if full else "name another folder with --out",
        ) from error
    if lacking:
        raise KafkaQuotasError(
            f"can't keep all of the run in {folder}: it lacks {', '.join(lacking)}",
            hint="name another folder with --out",
        )


@option_group(OUTPUT_HEADING)
class ResultOutput:
    """The output of a result: its form on standard output, its plots, and its folder."""

    output: OutputForm = Output.TABLE
    plot: list[Path] | None = option(
        "--plot FILE", rich_help_panel=OUTPUT_HEADING, help="Draw the run into FILE, .png or .svg; may be repeated."
    )
    out: Path | None = option(
        "--out DIR",
        rich_help_panel=OUTPUT_HEADING,
        help="Keep run.json, report.html and samples.parquet in DIR, which is created if needed.",
    )
    junit: Path | None = option(
        "--junit FILE", help="Write the judgements into FILE as JUnit XML, one test case each, for CI."
    )
    repeat: int = option(
        "--repeat N",
        default=1,
        min=1,
        help="Run it N times, each kept in a folder inside --out. 'load-test compare' makes intervals of them.",
    )

    def check(self) -> None:
        """Check that everything can be written."""
        if self.repeat > 1:
            if self.out is None or self.plot or self.junit or self.output is not Output.TABLE:
                raise UsageError("--repeat keeps its runs in --out", hint="add --out DIR alone, without other outputs")
            if [*self.out.glob(f"{loadtest.REPEAT}*"), *self.out.glob(loadtest.RUN_FILE)]:
                hint = "name another folder with --out, or remove it"
                raise UsageError(f"{self.out} holds an earlier run", hint=hint)
        if self.out is not None:
            make_folder(self.out)
        check_plot_targets(self.plot or ())
        if self.junit is not None and not os.access(self.junit.parent, os.W_OK):
            raise UsageError(f"can't write {self.junit}: no folder to write into", hint="make the folder first")

    def repeats(self) -> Iterator["ResultOutput"]:
        """Yield the output of each repeat, itself where there is one run."""
        if self.repeat == 1 or self.out is None:
            yield self
            return
        for number in range(1, self.repeat + 1):
            write(f"repeat {number} of {self.repeat}", sys.stdout)
            yield replace(self, out=self.out / f"{loadtest.REPEAT}{number}")

    def keep(self, result: loadtest.LoadResult, shard: loadtest.Shard | None = None) -> Iterator[KafkaQuotasError]:
        """Print the result, draw its plots and write its folder, and yield the error of each that fails."""
        print_load(result, self.output)
        writes = [partial(save_plot, load_series(result), plot, title=result.title) for plot in self.plot or ()]
        if self.junit is not None:
            writes.append(partial(save_text, self.junit, loadtest.junit_xml(result)))
        if self.out is not None:
            writes.append(partial(keep_result, result, self.out, shard=shard))
        for write_one in writes:
            try:
                write_one()
            except KafkaQuotasError as error:
                yield error


def keep_runs(result: ScenarioResult, output: ResultOutput) -> None:
    """Print and keep every run of a scenario.

    For machine-readable forms only the run with quotas is printed. The run without quotas has a folder of its own
    inside that of the others.
    """
    failures: list[KafkaQuotasError] = []
    for run in result.runs:
        is_judged = run.variant is loadtest.Variant.WITH_QUOTAS
        if output.output is Output.TABLE or is_judged:
            out = output.out if is_judged or output.out is None else output.out / run.variant.value
            files = {"plot": output.plot, "junit": output.junit} if is_judged else {"plot": None, "junit": None}
            failures += replace(output, out=out, **files).keep(run.result, run.shard)
    if output.output is Output.TABLE:
        for run in result.runs:
            if run.result.probes:
                write(f"{run.variant.value}: {_probes_text(run.result)}", sys.stdout)
    if result.scale != 1:
        write(f"note: run at a scale of {result.scale:g}; --scale 1 is the whole scenario", sys.stderr)
    for leftover in result.leftovers:
        write(f"warning: {leftover}", sys.stderr)
    print_verdict(_scenario_verdict(result), output.output)
    raise_all(failures)


def _scenario_verdict(result: ScenarioResult) -> str:
    judged = [run.result for run in result.runs if run.variant is loadtest.Variant.WITH_QUOTAS]
    line = verdict_line(judged[-1]) if judged else "VOID: no run with the quotas, so nothing was judged"
    if result.interrupted and not line.startswith("VOID"):
        return "VOID: interrupted before all runs were complete"
    if result.leftovers and line.startswith("PASS"):
        return f"FAIL: {format_count(len(result.leftovers), 'change')} could not be undone"
    return line


def print_verdict(line: str, output: Output) -> None:
    """Print the last line of a run, beside a document on standard error."""
    stream = sys.stdout if output is Output.TABLE else sys.stderr
    write(marked(line, stream), stream)


def exit_code(result: loadtest.LoadResult | ScenarioResult) -> int:
    """Return the exit code of a run."""
    return INTERRUPTED if result.interrupted else int(not result.ok)


def raise_all(failures: Sequence[KafkaQuotasError]) -> None:
    """Raise one error for all outputs that failed, if any did."""
    if failures:
        raise KafkaQuotasError("; ".join(each.message for each in failures), hint=failures[0].hint) from failures[0]


def _probes_text(result: loadtest.LoadResult) -> str:
    waits = sorted(probe.wait_ms for probe in result.probes if probe.wait_ms is not None)
    count = len(result.probes)
    if not waits:
        errors = "; ".join(sorted({probe.error for probe in result.probes if probe.error}))
        return f"none of {count} later topics became visible in time: {errors}"
    unseen = f", {count - len(waits)} never in time" if len(waits) < count else ""
    middle, longest = waits[len(waits) // 2], waits[-1]
    return (
        f"a later topic took {format_duration_us(middle * 1000)} to be visible (median of {count}), "
        f"{format_duration_us(longest * 1000)} at most{unseen}"
    )


def keep_result(
    result: loadtest.LoadResult, folder: Path, *, plot: bool = False, shard: loadtest.Shard | None = None
) -> None:
    """Write a run into its folder: run.json, a shard, and what installed libraries can make.

    These are samples.parquet (pyarrow), report.html and, for `plot`, run.png (matplotlib).
    """
    make_folder(folder)
    with written_together(folder) as place:
        (place / loadtest.RUN_FILE).write_text(json_text(envelope(load_listing(result))) + "\n", encoding="utf-8")
        if shard is not None:
            loadtest.write_shard(shard, place / loadtest.SHARD_FILE)
        if loadtest.can_write_samples():
            loadtest.write_samples(result, place / loadtest.SAMPLES_FILE)
        else:
            write(f"note: no {loadtest.SAMPLES_FILE} without pyarrow: {install_libraries('pyarrow')}", sys.stderr)
        missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
        if missing:
            hint = install_extra("plot", *missing)
            write(f"note: no {REPORT_FILE} without {' and '.join(missing)}: {hint}", sys.stderr)
            return
        draw_result(result, place, plot=plot)


def draw_result(result: loadtest.LoadResult, place: Path, *, plot: bool = False) -> None:
    """Draw report.html and, if asked for, run.png into a folder."""
    from kafka_quotas.cli.load_test.views.page import load_page  # noqa: PLC0415 - charts are drawn seldom

    (place / REPORT_FILE).write_text(page_html(load_page(result)), encoding="utf-8")
    if plot:
        save_plot(load_series(result), place / PLOT_FILE, title=result.title)
