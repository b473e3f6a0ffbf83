"""`kafka-quotas pipeline demo`: from recorded traffic to quotas that are set, command by command."""

import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import typer

from kafka_quotas import loadtest
from kafka_quotas.cli.charts.html_page import require_jinja
from kafka_quotas.cli.charts.plot import require_matplotlib
from kafka_quotas.cli.framework.help_page import OPTIONS_HEADING, OUTPUT_HEADING
from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.load_test.views.view import live_watcher, print_load
from kafka_quotas.cli.options.stores import JOURNAL_VARIABLE
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.cli.output.render import write
from kafka_quotas.commands.examples import examples_folder
from kafka_quotas.commands.quotas.alter import alter
from kafka_quotas.commands.testbed.daemon_process import work_folder
from kafka_quotas.commands.testbed.kafka_broker import (
    BROKER_ID,
    REQUEST_LOG,
    VERSION,
    KafkaServerError,
    kafka_jars,
    running_broker,
)
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.errors import INTERRUPTED, KafkaQuotasError, UsageError
from kafka_quotas.core.extras import find_java
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quota_files.writer import FileFormat, file_text
from kafka_quotas.pipeline.engine.job import require_libraries
from kafka_quotas.stores import StoreSettings, open_store
from kafka_quotas.wire import NewTopic

SCENARIO: Final = "everyday"
"""The shipped scenario of the demo, as in `kafka-quotas load-test run everyday`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The request logs of the demo, and the quotas and the quota window during their recording."""

    logs: Path
    in_force: Path
    window: QuotaWindow
    has_spark: bool = True
    default_of: str = "client-id"
    tight: str = "500k"
    """A default for bytes/s written, as quota files have it, that some clients exceed."""
    generous: str = "1M"
    """One that few do."""


def record_traffic(
    scenario: loadtest.Scenario, *, java: Path, jars: Path, out: Path, watcher: loadtest.Watcher | None
) -> tuple[Recording, loadtest.LoadResult]:
    """Record the request log of a real broker under a scenario's load and quotas.

    The broker is stopped afterwards. Errors of `run_load` pass through.
    """
    libraries, quotas = kafka_jars(jars.absolute()), [each.entry for each in scenario.quotas]
    with work_folder() as folder:
        request_log = folder / REQUEST_LOG
        with running_broker(java=java, jars=libraries, folder=folder, window=scenario.window) as (bootstrap, _):
            _make_topics(scenario, bootstrap)
            with closing(open_store(f"kafka://{bootstrap}")) as store:
                for entity, changes in quotas:
                    alter(store, entity=entity, changes=changes)
            plan = replace(loadtest.own_plan(scenario), bootstrap=bootstrap, run_id=secrets.randbits(64))
            prepared = request_log.stat().st_size  # making and filling topics is no traffic
            result = loadtest.run_load(plan, clock=SystemClock(), watcher=watcher)
        logs = out / "logs"
        recorded = logs / str(BROKER_ID) / REQUEST_LOG
        recorded.parent.mkdir(parents=True, exist_ok=True)
        with request_log.open("rb") as source, recorded.open("wb") as copy:
            source.seek(prepared)
            source.readline()  # it may be the rest of a line
            shutil.copyfileobj(source, copy)
    declared = out / "in-force.yaml"
    declared.write_text("".join(file_text(quotas, FileFormat.YAML)), encoding="utf-8")
    return Recording(logs=logs, in_force=declared, window=scenario.window), result


def _make_topics(scenario: loadtest.Scenario, bootstrap: str) -> None:
    with closing(loadtest.TopicAdmin(bootstrap, settings=StoreSettings())) as admin:
        admin.make([NewTopic(each.name, each.partitions, each.replication_factor) for each in scenario.topics])
    for each in scenario.topics:
        loadtest.fill_topic(
            bootstrap, each.name, partitions=each.partitions, records=each.fill, record_size=each.record_size
        )


def steps(out: Path, found: Recording) -> Iterator[tuple[str, list[str]]]:
    """Yield the steps from request logs to quotas that are set: a heading, and the arguments of a command."""
    data, quotas, store = str(out / "data"), str(out / "recommended.yaml"), f"local:{out / 'quotas.db'}"
    windows = f"--quota-window-num {found.window.samples} --quota-window-size-seconds {found.window.window_s}".split()
    advice = ["--default-of", found.default_of, "--min-recorded", "10s", *windows]
    in_force, proposed = str(found.in_force), [str(out / "tight.yaml"), str(out / "generous.yaml")]

    def job(*arguments: str) -> list[str]:
        return ["pipeline", *arguments, "--engine", "spark" if found.has_spark else "local"]

    pattern = f"{found.logs}/{{broker_id}}/*.log*"
    yield "Read the request log into tables", job("ingest", "--source", pattern, "--timezone", "UTC", "--out", data)
    yield "Profile: who uses what", job("usage", data, "--quotas", in_force, *windows, "--limit", "10")
    replayed = job("replay", data, "--quotas", *proposed, "--model", "closed", *windows, "--limit", "10")
    yield "What would two other sets of quotas have done?", replayed
    yield "Which quotas to set", job("recommend", data, *advice, "--file", quotas)
    reported = job("report", data, "--quotas", in_force, *advice, "--out", str(out / "report.html"))
    yield "The same for people who don't run Kafka", reported
    yield "Set them, in a store of the demo's own", ["apply", quotas, "--store", store]
    yield "What is set now", ["describe", "--store", store]


_SAMPLE_WINDOW = QuotaWindow(samples=3, window_s=1)
"""Of the brokers whose request logs are the sample."""


@option_group(OPTIONS_HEADING)
class _DemoOptions:
    out: Path = option(
        "--out DIR",
        rich_help_panel=OUTPUT_HEADING,
        default=Path("pipeline-demo-output"),
        help="Where everything goes; what an earlier demo left is replaced.",
    )
    broker_jars: Path | None = option(
        "--broker-jars DIR",
        help=f"Kafka's jars; fetched into it by Maven (release {VERSION}) where the folder is not there.",
    )


def demo(*, asked: _DemoOptions) -> None:
    """Show the pipeline on real traffic: record, ingest, profile, replay, recommend, report, apply.

    A real Kafka broker is started with its request log on, and a load test runs against it. Without Java
    or Maven, request logs from a sample are used, and Spark is left out; it says which. The quotas go to a store in
    the demo's own folder, with a journal of its own. The exit code is 0 only if every step succeeded.
    """
    require_libraries()
    require_matplotlib()
    require_jinja()
    started_s = time.monotonic()
    _clear(asked.out)
    recording = _record(asked.out, asked.broker_jars, examples_folder() / "request-log")
    for name, value in (("tight", recording.tight), ("generous", recording.generous)):
        text = f"entries:\n  - {{entity: {{{recording.default_of}: null}}, quotas: {{producer_byte_rate: {value}}}}}\n"
        (asked.out / f"{name}.yaml").write_text(text, encoding="utf-8")
    with _journal_in(asked.out):
        for title, arguments in steps(asked.out, recording):
            _run(title, arguments)
    write(f"\nDone in {time.monotonic() - started_s:.0f} s. Open {asked.out / 'report.html'} in a browser.", sys.stdout)


def _clear(out: Path) -> None:
    marker = out / ".kafka-quotas-demo"
    if out.exists() and any(out.iterdir()) and not marker.is_file():
        raise UsageError(f"{out} holds other things than an earlier demo", hint="name another folder with --out")
    try:
        shutil.rmtree(out, ignore_errors=False) if out.exists() else None
        out.mkdir(parents=True)
        marker.touch()
    except OSError as error:
        raise KafkaQuotasError(f"can't use {out}: {error.strerror or error}", hint="choose another --out") from error


def _record(out: Path, jars: Path | None, sample: Path) -> Recording:
    try:
        java = find_java()
    except KafkaQuotasError as error:
        return _sample(sample, error, has_spark=False)
    try:
        scenario = loadtest.read_scenario(SCENARIO)
        _heading(f"Traffic: a Kafka {VERSION} broker, its request log on, under the load test '{SCENARIO}'")
        write(f"{scenario.title}.", sys.stdout)
        from platformdirs import user_cache_path  # noqa: PLC0415 - only a demo pays for it

        jars = jars or user_cache_path("kafka-quotas") / f"kafka-{VERSION}"
        with live_watcher("load") as watcher:
            recording, result = record_traffic(scenario, java=java, jars=jars, out=out, watcher=watcher)
    except KafkaServerError as error:
        return _sample(sample, error, has_spark=True)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    print_load(result, Output.TABLE)
    return recording


def _sample(sample: Path, reason: KafkaQuotasError, *, has_spark: bool) -> Recording:
    in_force = sample / "quotas.yaml"
    if not in_force.is_file():
        raise KafkaQuotasError(
            f"no broker can be started ({reason.message}), and {sample} holds no request logs",
            hint="kafka-quotas examples list says where the examples are",
        ) from reason
    _heading(f"Traffic: the request logs of real brokers in {sample}")
    write(f"note: no broker of our own: {reason.message}", sys.stderr)
    return Recording(
        logs=sample,
        in_force=in_force,
        window=_SAMPLE_WINDOW,
        has_spark=has_spark,
        default_of="user",
        tight="50k",
        generous="200k",
    )


@contextmanager
def _journal_in(out: Path) -> Iterator[None]:
    """Direct the journal of the block's commands to the demo's folder instead of the user's."""
    before = os.environ.get(JOURNAL_VARIABLE)
    os.environ[JOURNAL_VARIABLE] = str((out / "journal.jsonl").absolute())
    try:
        yield
    finally:
        os.environ.pop(JOURNAL_VARIABLE, None)
        if before is not None:
            os.environ[JOURNAL_VARIABLE] = before


def _run(title: str, arguments: list[str]) -> None:
    from kafka_quotas.cli.main import main  # noqa: PLC0415 - it is the table that this command is in

    _heading(title)
    write(f"$ {shlex.join(['kafka-quotas', *arguments])}", sys.stdout)
    sys.stdout.flush()
    code = main(arguments)
    sys.stdout.flush()
    if code:
        raise typer.Exit(code)


def _heading(text: str) -> None:
    write(f"\n== {text}", sys.stdout)
    sys.stdout.flush()
