"""The JSON of every command, field by field, as scripts rely on it.

A command that takes --output and has no schema fails here: give it one in `cli.output.schemas` and an example below, or
a line in `ELSEWHERE`. A field that goes, or means something else, makes a new version of the schema.
"""

import ast
import csv
import dataclasses
import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol, Union, get_args, get_origin, get_type_hints

import pytest
import yaml
from generators.documentation.documents import commands
from tests.support.pipeline.events import events_folder, random_events
from tests.support.processes.output_contract import check_document, expected_csv
from tests.support.processes.run_cli import run_cli
from tests.support.stores.stored_quotas import new_store
from typer.core import TyperOption

from kafka_quotas.cli.output.listing import json_text
from kafka_quotas.cli.output.render import envelope, records_of
from kafka_quotas.cli.output.schemas.catalogue import SCHEMAS
from kafka_quotas.commands.insight.usage import UsageReading
from kafka_quotas.commands.quotas.watch import SeenChange
from kafka_quotas.core.changes.plan import PlannedChange
from kafka_quotas.core.groups.group import GroupMember
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.resolution.usage import Usage
from kafka_quotas.enforcement.decisions import Decision
from kafka_quotas.enforcement.telemetry.counters import Counters
from kafka_quotas.enforcement.telemetry.status import DaemonStatus
from kafka_quotas.loadtest.run.journal import RunHeader, open_journal


def named(path: str) -> Any:
    """What a path of the form `module:attribute` names below this project's package."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(f"kafka_quotas.{module}"), attribute)


def filled(kind: Any, within: frozenset[Any] = frozenset()) -> Any:
    """A value of a type: every figure 1, every text "1", every collection with one item, nothing left out.

    A collection is empty that would hold another value of a type that it is `within`.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is GroupMember:  # whose parts exclude each other
        return GroupMember(user="1")
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = {name: each for name, each in _hints(kind).items() if each is not ClassVar}
        return kind(**{name: filled(each, within | {kind}) for name, each in hints.items()})
    if origin in (Union, types.UnionType):
        return filled(next(each for each in arguments if each is not type(None)), within)
    if origin in (tuple, Sequence):
        is_circular = ... in arguments and _names_any(arguments, within)
        return () if is_circular else tuple(filled(each, within) for each in arguments if each is not ...)
    if origin is not None and issubclass(origin, Mapping):
        return {filled(arguments[0], within): filled(arguments[1], within)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return Path("1") if kind is Path else kind(1)


def _names_any(arguments: tuple[Any, ...], kinds: frozenset[Any]) -> bool:
    return any(each in kinds if isinstance(each, type) else _names_any(get_args(each), kinds) for each in arguments)


def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields.

    Names that a module has for type checkers only are looked up below the package.
    """
    module = import_module(kind.__module__)
    try:
        return get_type_hints(kind)
    except NameError:
        return get_type_hints(kind, localns=_checked_names(module))


def _checked_names(module: types.ModuleType) -> dict[str, Any]:
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: getattr(import_module(str(node.module)), alias.name)
        for node in imports
        if str(node.module).startswith("kafka_quotas.")
        for alias in node.names
    }


ROOT = Path(__file__).parents[4]
_RUNS = "tests/unit/loadtest/results/test_run_file.py"
ELSEWHERE = {
    **{f"load-test {name}": _RUNS for name in ("produce", "consume", "run", "requests", "mutate", "connect")},
    **dict.fromkeys(("load-test report", "load-test merge", "demo"), _RUNS),
    "load-test compare": "tests/unit/cli/load_test/test_options.py",
}
"""The files that check documents where a server or a load gives them."""
CHANGES_AT_EACH_RUN = ("alter", "revert, done", "apply", "migrate", "context test")
"""Examples whose second run finds what the first has done, or measures again."""
COMPUTES = ("pipeline usage", "pipeline replay", "pipeline recommend")
"""Examples that take a second each time: tests/property/test_output_forms.py has the forms of their documents."""
PAIR = Entity.of(user="al, ice", client_id=None)
RATE, SHARE = "producer_byte_rate", "request_percentage"
EVENTS = str(ROOT / "examples" / "events-kip13.jsonl")
EXAMPLES = {
    "alter": "alter --store STORE --user zoe --add-config producer_byte_rate=1",
    "alter, dry run": "alter --store STORE --user alice --add-config producer_byte_rate=1 --dry-run",
    "describe": "describe --store STORE",
    "examples list": "examples list",
    "describe, columns": "describe --store STORE --columns user,value,key,client-id",
    "describe, effective": "describe --store STORE --effective --user alice --client app --brokers 3",
    "describe, effective for all": "describe --store STORE --effective",
    "describe, with usage": "describe --store STORE --effective --user alice --with-usage",
    "revert, list": "revert --list",
    "revert, one": "revert last --store STORE",
    "revert, done": "revert last --yes --store STORE",
    "revert, due": "revert --due",
    "validate": "validate FILE",
    "validate, problems": "validate WRONG",
    "diff": "diff FILE --store STORE",
    "apply": "apply FILE --store STORE",
    "apply, dry run": "apply FILE --store STORE --dry-run",
    "apply, failures": "apply INVALID --store STORE --allow-invalid",
    "watch": "watch --store STORE --limit 2",
    "migrate": "migrate --from STORE --to OTHER",
    "context list": "context list",
    "context show": "context show",
    "context test": "context test prod",
    "daemon check": "daemon check --upstream b:1 --metrics-user alice",
    "context show, origin": "context show prod",
    "tree": "tree --store STORE",
    "doctor": "doctor --store STORE",
    "why": "why --store STORE --user alice --client app",
    "top": "top --store STORE --once",
    "load-test list": "load-test list",
    "load-test validate": "load-test validate kip599-burst --embedded",
    "load-test restore": "load-test restore --journal-dir JOURNALS --dry-run",
    "pipeline usage": "pipeline usage DATA --store STORE",
    "pipeline replay": "pipeline replay DATA --quotas FILE",
    "pipeline recommend": "pipeline recommend DATA",
    "throttle rate": "throttle rate --quota 5MB/s --steady 5MB/s --burst 15MB",
    "throttle request": "throttle request --quota 0.1% --stall 100ms",
    "throttle mutation": "throttle mutation --quota 5 --burst 560",
    "throttle compare": "throttle compare --quota 5 --burst 560",
    "throttle simulate": f"throttle simulate {EVENTS} --quota 5MB/s",
}
"""A command line for each kind of document; what comes before a comma is the command."""
BUILT = {
    "daemon status": ("cli.daemon.command:status_listing", "enforcement.telemetry.status:DaemonStatus"),
    "daemon reload": ("cli.daemon.command:reload_listing", "enforcement.quotas.store_watcher:Reloaded"),
    "daemon unmute": ("cli.daemon.command:unmuted_listing", "enforcement.proxy.proxy_server:Unmuted"),
    "daemon decide": ("cli.daemon.command:decision_listing", "enforcement.decisions:Decision"),
    "daemon calibrate": ("cli.daemon.command:_cost_listing", "core.quotas.quota_charges:CostModel"),
    "pipeline validate": ("cli.pipeline.validate:validation_listing", "pipeline.jobs.validate:Validation"),
    "pipeline ingest": ("cli.pipeline.ingest:_listing", "pipeline.ingest.job:IngestResult"),
}
"""Where it takes a server to have one: what makes the listing, and of what. The result is filled in."""


def listings() -> Iterator[str]:
    """The paths of the commands that take --output, without the program's name."""
    for command, context in commands():
        options = [each for each in command.params if isinstance(each, TyperOption)]
        if any("--output" in each.opts for each in options):
            yield str(context.command_path).partition(" ")[2]


def test_every_command_that_prints_documents_has_its_contract() -> None:
    covered = {name.partition(",")[0] for name in EXAMPLES} | set(BUILT) | set(ELSEWHERE)
    assert sorted(set(listings()) - covered) == [], "it needs an example, or a line in BUILT, and a shape"
    assert sorted(covered - set(listings())) == []
    known = {command.partition(" --")[0] for _, schema in SCHEMAS.items() for command in schema.commands}
    assert {name.partition(",")[0] for name in covered} <= known


def _as_a_daemon_fills_it(result: Any) -> Any:
    """The result with every counter, and with entities where it has texts of them."""
    if isinstance(result, Decision):
        return result._replace(entity=str(PAIR))
    if not isinstance(result, DaemonStatus):
        return result
    throttled = tuple(dataclasses.replace(row, entity=str(PAIR)) for row in result.throttled)
    return dataclasses.replace(result, counters=dataclasses.asdict(Counters()), throttled=throttled)


@pytest.mark.parametrize("name", BUILT)
def test_what_a_server_reports_follows_its_schema_too(name: str) -> None:
    make, result = map(named, BUILT[name])
    listing = make(_as_a_daemon_fills_it(filled(result)))
    check_document(json.loads(json_text(envelope(listing))))
    assert records_of(listing).rows, "it has rows for CSV"


@pytest.mark.parametrize(("name", "prefix"), [("daemon status", "entity_"), ("daemon decide", "quota_entity_")])
def test_whose_quota_it_is_has_columns_of_its_own(name: str, prefix: str) -> None:
    make, result = map(named, BUILT[name])
    records = records_of(make(_as_a_daemon_fills_it(filled(result))))
    cells = dict(zip((column.title for column in records.columns), records.rows[0], strict=True))
    assert (cells[f"{prefix}user"], cells[f"{prefix}client_id"], cells[f"{prefix}defaults"]) == (
        "al, ice",
        None,
        "client_id",
    )


@pytest.mark.parametrize("file", sorted(set(ELSEWHERE.values())))
def test_what_is_checked_elsewhere_is(file: str) -> None:
    assert "kafka-quotas.load-" in (ROOT / file).read_text(encoding="utf-8")


class Run(Protocol):
    """Runs an example in a form, on what is not a terminal unless told otherwise."""

    def __call__(self, example: str, form: str, *, terminal: bool = False) -> str: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What an example prints in a form: over a store with everything in it, a journal, a context and seen rates."""
    store = new_store(
        tmp_path,
        {
            Entity.of(user="alice"): {RATE: 5e6, SHARE: 50.0},
            Entity.of(user="alice", client_id="app"): {RATE: 2e6},
            Entity.of(user=None): {RATE: 1e6},
            Entity.of(ip="127.0.0.1"): {"connection_creation_rate": 5.0},
        },
    )
    (tmp_path / "q.yaml").write_text(
        f"- {{entity: {{user: alice}}, quotas: {{{RATE}: 4M}}}}\n"
        f"- {{entity: {{user: new, client-id: null}}, quotas: {{{SHARE}: 10}}}}\n",
        encoding="utf-8",
    )
    (tmp_path / "wrong.yaml").write_text("- {entity: {user: ''}, quotas: {}}\n- 7\n", encoding="utf-8")
    (tmp_path / "invalid.yaml").write_text(
        f"- {{entity: {{user: zero}}, quotas: {{{RATE}: 0}}, invalid: true}}\n", encoding="utf-8"
    )
    environment = {
        "KAFKA_QUOTAS_JOURNAL": str(tmp_path / "journal.jsonl"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    places = {
        "STORE": store,
        "OTHER": f"local:{tmp_path}/other.db",
        "INVALID": str(tmp_path / "invalid.yaml"),
        "FILE": str(tmp_path / "q.yaml"),
        "WRONG": str(tmp_path / "wrong.yaml"),
        "DATA": str(tmp_path / "data"),
        "JOURNALS": str(tmp_path / "journals"),
    }
    _run_left_behind(tmp_path / "journals")
    _seen_rates(monkeypatch)

    def told(example: str, form: str, *, terminal: bool = False) -> str:
        if "DATA" in example and not (tmp_path / "data").exists():
            events_folder(tmp_path / "data", random_events(300, seed=6))
        argv = [places.get(word, word) for word in example.split()]
        code, out, err = run_cli(*argv, "--output", form, environment=environment, terminal=terminal)
        assert out, f"exit code {code}: {err}"
        return out

    set_up = (
        "context set prod --store kafka://127.0.0.1:9 --username alice --password-command pass --property a=b",
        f"alter --store {store} --user bob --add-config {RATE}=1,{SHARE}=2 --reason why --for 2h",
    )
    for line in set_up:
        assert run_cli(*line.split(), environment=environment)[0] == 0
    return told


def _run_left_behind(folder: Path) -> None:
    """The journal of a load test that was killed."""
    place = RunHeader(run="1", scenario="ratio", started_ms=0, bootstrap="", store="", command_config=None)
    with open_journal(folder, place) as journal:
        journal.quotas([PlannedChange(entity=Entity.of(user="alice"), key=RATE, old=None, new=1.0)])
        journal.topics("kafka-quotas-ratio-")
        journal.folder(Path("kafka-quotas-1"))


def _seen_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates as a source would tell them, and changes as a store would."""
    seen = [
        Usage(user=user, client_id=client_id, broker="1", key=RATE, observed=6e6, throttle_ms=throttle_ms)
        for user, client_id, throttle_ms in (("alice", "app", 700.0), ("alice", "", 0.0), ("zoe", "new", None))
    ]
    reading = UsageReading(origin="a test", usages=tuple(seen), store_url=None)
    changes = [
        SeenChange(time_ms=0, store_url="local:q.db", entity=Entity.of(user="x"), key=RATE, old=old, new=new)
        for old, new in ((None, 1.0), (1.0, None))
    ]
    monkeypatch.setattr("kafka_quotas.commands.insight.usage.read_usage", lambda _: reading)
    monkeypatch.setattr("kafka_quotas.cli.quotas.whole_stores.run_watch", lambda *_, **__: iter(changes))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_form_follows_the_schema_and_has_the_same_values(run: Run, name: str) -> None:
    documents = _documents(run(EXAMPLES[name], "json"), "json")
    for document in documents:
        check_document(document)
    if name not in (*CHANGES_AT_EACH_RUN, *COMPUTES):
        assert _documents(run(EXAMPLES[name], "yaml"), "yaml") == documents
        header, *rows = csv.reader(run(EXAMPLES[name], "csv").splitlines())
        assert [header, *rows] == expected_csv(documents)


def _documents(text: str, form: str) -> list[dict[str, Any]]:
    """The documents of an output: one, or with `watch` several, one per line of JSON."""
    if form == "yaml":
        return list(yaml.safe_load_all(text))
    lines = text.splitlines()
    one_per_line = len(lines) > 1 and lines[0].endswith("}")
    return [json.loads(each) for each in (lines if one_per_line else [text])]


WIDE = ("describe, effective for all", "diff", "revert, list", "tree", "doctor", "why", "top", "context show, origin")


@pytest.mark.parametrize("name", WIDE)
def test_a_terminal_of_80_columns_cuts_no_line(run: Run, name: str) -> None:
    out = re.sub(r"\x1b\[\d*m", "", run(EXAMPLES[name], "table", terminal=True))
    assert max(map(len, out.splitlines())) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in out
