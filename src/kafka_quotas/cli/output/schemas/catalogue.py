"""The schemas of all documents by noun, as they are published, and documents as rows: the columns of CSV and --columns.

Invariants: the columns follow from the schema alone, never from what a document holds; null is None, and a row is
complete in itself.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final

from kafka_quotas.cli.output.listing import SCHEMA_PREFIX, Cell
from kafka_quotas.cli.output.schemas.forms import (
    COLUMNS,
    DEFINITIONS,
    DRAFT,
    ENTITY,
    INTEGER,
    PREFIX,
    SEPARATOR,
    TEXT,
    Schema,
    nullable,
    of_record,
    record,
    rows,
)
from kafka_quotas.commands.examples import examples_folder
from kafka_quotas.core.errors import UsageError, near_hint
from kafka_quotas.core.model.entity import ENTITY_TYPES, GROUP, THRESHOLD_TYPES

CONTEXTS_SUFFIX: Final = "-contexts"
"""Ends the noun of a document about several contexts."""
_WRITTEN: Final = "cli.output.schemas.written"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """A kind of document that commands print."""

    commands: tuple[str, ...]
    """The commands that print it, without the program's name."""
    source: str = ""
    """Where its record is, or the schemas of its fields: a module below the package, a colon, and the name."""
    lists: Mapping[str, str] = field(default_factory=dict)
    """Lists at the end, each with where the record of its items is."""
    written: Schema = field(default_factory=dict)
    """The schemas of fields between the two that no record says."""
    file: str = ""
    """The example that has its schema, in place of all of these."""
    rows: tuple[str, ...] = ()
    """The names of the lists whose items are the rows of CSV, each below the one before; empty: the document is."""
    columns: tuple[str, ...] = ()
    version: int = 1
    per_context: bool = False
    """Whether it has such a document for each of several contexts."""

    @property
    def fields(self) -> Schema:
        """The schema of each field of the document by its name, in order."""
        if self.file:
            return {name: each for name, each in _of_file(self.file)["properties"].items() if name != "schema"}
        own = _of_source(self.source) if self.source else {}
        lists = {name: rows(record(_of_source(source))) for name, source in self.lists.items()}
        found = {**own, **self.written, **lists}
        if not self.per_context:
            return found
        error = nullable(record({"message": TEXT, "hint": nullable(TEXT)}), "null where it succeeded")
        nothing = {name: nullable(each, "null where the context failed") for name, each in found.items()}
        return {"contexts": rows(record({"context": TEXT, "error": error, **nothing}))}

    @property
    def items(self) -> str:
        """The name of the list that a limit shortens, empty for none."""
        return "" if self.per_context or not self.rows else self.rows[0]

    @property
    def definitions(self) -> Schema:
        """What references of the fields lead to."""
        found: Schema = _of_file(self.file)["$defs"] if self.file else DEFINITIONS
        return found

    @property
    def document(self) -> Schema:
        """The schema of the document without its first field, which names the schema."""
        return record(dict(self.fields))


def _of_source(source: str) -> dict[str, Schema]:
    module, _, name = source.partition(":")
    found = getattr(import_module(f"kafka_quotas.{module}"), name)
    return of_record(found) if isinstance(found, type) else dict(found)


@cache
def _of_file(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((examples_folder() / name).read_text(encoding="utf-8"))
    return document


def _kind(commands: str, source: str = "", *rows: str, of: str = "", **more: Any) -> OutputSchema:
    """Return a kind of document.

    It takes the commands between commas, and the lists that lead to CSV's rows. `of` is where the record of the first
    list's items is.
    """
    lists = {rows[0]: of} if of else {}
    return OutputSchema(commands=tuple(commands.split(", ")), source=source, rows=rows, **{"lists": lists, **more})


_RUN_COLUMNS: Final = (
    *("user", "client_id", "does", "unit", "ok", "verdict_kind", "verdict_achieved", "verdict_quota", "verdict_ratio"),
    *("verdict_cycles", "records_acked", "throttle_count", "throttle_sum_ms", "latency_response_p50_us"),
    "latency_response_p99_us",
)
SCHEMAS: Final[dict[str, OutputSchema]] = {
    "alter": _kind("alter", "commands.quotas.alter:AlterResult", "changes"),
    "apply": _kind("apply", "commands.declarative.apply:ApplyResult", "changes"),
    "apply-contexts": _kind("apply", "commands.declarative.apply:ApplyResult", "contexts", "changes", per_context=True),
    "change": _kind("watch", "commands.quotas.watch:SeenChange"),
    "context-test": _kind("context test", "", "addresses", of="cli.context:Reached"),
    "contexts": _kind("context list", "stores.contexts:Contexts", "contexts", of="cli.context:ContextRow"),
    "cost-model": _kind("daemon calibrate", f"{_WRITTEN}:COST_MODEL", "apis"),
    "daemon-config": _kind("daemon check", f"{_WRITTEN}:DAEMON_CONFIG", "settings"),
    "daemon-reload": _kind("daemon reload", "enforcement.quotas.store_watcher:Reloaded"),
    "daemon-status": _kind("daemon status", "enforcement.telemetry.status:DaemonStatus", "throttled"),
    "daemon-unmute": _kind("daemon unmute", "enforcement.proxy.proxy_server:Unmuted", "unmuted"),
    "decision": _kind("daemon decide", f"{_WRITTEN}:DECISION"),
    "diff": _kind("diff", "commands.declarative.apply:DiffResult", "changes"),
    "diff-contexts": _kind("diff", "commands.declarative.apply:DiffResult", "contexts", "changes", per_context=True),
    "doctor": _kind("doctor", "commands.insight.doctor:DoctorResult", "findings"),
    "effective": _kind(
        "describe --effective",
        "commands.quotas.describe:EffectiveResult",
        "clients",
        "quotas",
        of="cli.quotas.describe:ClientRow",
    ),
    "examples": _kind("examples list", "", "examples", written={"folder": TEXT}, of="cli.help_topics:Example"),
    "help": _kind("--help-json", "", "commands", of="cli.help_topics:CommandHelp"),
    "journal": _kind("revert --list", "", "entries", "changes", of="cli.quotas.revert:JournalRow"),
    "load-comparison": _kind("load-test compare", "loadtest.verdict.comparison:RunComparison", "differences"),
    "load-restore": _kind("load-test restore", "", "runs", of="commands.load_test.cleanup:RestoredRun"),
    "load-scenarios": _kind("load-test list", "", "scenarios", of="cli.load_test.scenarios:ScenarioRow"),
    "load-test": _kind(
        "demo, load-test run, load-test produce, load-test consume, load-test requests, load-test mutate, "
        "load-test connect, load-test report, load-test merge",
        "",
        "entities",
        file="load-test-run.schema.json",
        columns=_RUN_COLUMNS,
        version=3,
    ),
    "load-validate": _kind("load-test validate", "commands.load_test.request:ScenarioCheck", "obstacles"),
    "migration": _kind("migrate", "commands.quotas.migrate:MigrationResult", "quotas"),
    "pipeline-ingest": _kind(
        "pipeline ingest",
        "pipeline.ingest.job:IngestResult",
        written={"faults": rows(record({"file": TEXT, "reason": TEXT, "lines": INTEGER, "first_line": INTEGER}))},
    ),
    "pipeline-recommend": _kind(
        "pipeline recommend",
        f"{_WRITTEN}:PIPELINE_RECOMMEND",
        "quotas",
        lists={"groups": "cli.pipeline.recommend:GroupDemand"},
    ),
    "pipeline-recommend-explain": _kind(
        "pipeline recommend --explain",
        "",
        "quotas",
        "brokers",
        "tried",
        written={"name": TEXT},
        of="cli.pipeline.recommend:ExplainedQuota",
    ),
    "pipeline-replay": _kind("pipeline replay", f"{_WRITTEN}:PIPELINE_REPLAY", "rows"),
    "pipeline-usage": _kind("pipeline usage", f"{_WRITTEN}:PIPELINE_USAGE", "buckets"),
    "pipeline-validate": _kind("pipeline validate", "pipeline.jobs.validate:Validation", "buckets"),
    "quotas": _kind("describe", "", "entries", "quotas", of="stores.store:QuotaEntry"),
    "revert": _kind("revert", "commands.quotas.journal:RevertProposal", "changes", of="cli.quotas.revert:RevertRow"),
    "settings": _kind("context show", "", "settings", of="cli.context:SettingInForce"),
    "throttle-compare": _kind("throttle compare", "commands.throttle.mutation:AlgorithmComparison", "algorithms"),
    **{
        f"throttle-{name}": _kind(
            f"throttle {name}",
            "commands.throttle.rate:CalculatorAnswer",
            "calculations",
            "steps",
            columns=("method", "figure", "arithmetic", "value", "unit"),
        )
        for name in ("mutation", "rate", "request")
    },
    "throttle-simulate": _kind("throttle simulate", "commands.throttle.simulate:Simulation", "decisions"),
    "top": _kind("top", "commands.insight.usage:TopResult", "rows"),
    "tree": _kind("tree", "commands.insight.why:TreeResult", "quotas"),
    "undone": _kind("revert --due", "", "changes", of="cli.quotas.revert:UndoneRow"),
    "validate": _kind("validate", "commands.declarative.apply:ValidateResult", "problems"),
    "why": _kind("why", "cli.insight.why:WhyDocument", "answers", "brokers"),
}


def find_schema(noun: str) -> OutputSchema:
    """Return the schema of a kind of document."""
    if noun not in SCHEMAS:
        hint = near_hint(noun, SCHEMAS, otherwise="kafka-quotas help schemas lists them")
        raise UsageError(f"there is no schema {noun!r}", hint=hint)
    return SCHEMAS[noun]


def documents_of_command(command: str) -> list[str]:
    """Return the names and versions of the documents that a command prints, without the program's name."""
    return [
        f"{SCHEMA_PREFIX}.{noun}/{each.version}"
        for noun, each in SCHEMAS.items()
        if command and any(printed.partition(" --")[0] == command for printed in each.commands)
    ]


def json_schema(noun: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document, to be published."""
    return {"$schema": DRAFT, **_titled(noun, find_schema(noun)), **_definitions(find_schema(noun))}


def every_json_schema() -> str:
    """Return one JSON schema that takes every kind of document, as text."""
    listed = [(noun, each) for noun, each in SCHEMAS.items() if each.definitions is DEFINITIONS]
    others = [noun for noun, each in SCHEMAS.items() if each.definitions is not DEFINITIONS]
    document = {
        "$schema": DRAFT,
        "title": "What kafka-quotas prints with --output json and yaml",
        "description": f"By the field schema. Of {', '.join(others)} there is a schema of its own.",
        "oneOf": [{"$ref": f"#/$defs/{noun}"} for noun, _ in listed],
        "$defs": {**DEFINITIONS, **{noun: _titled(noun, each) for noun, each in listed}},
    }
    return json.dumps(document, indent=1) + "\n"


def _titled(noun: str, schema: OutputSchema) -> dict[str, Any]:
    name = f"{SCHEMA_PREFIX}.{noun}/{schema.version}"
    printed = ", ".join(schema.commands)
    fields = record({"schema": {"const": name}, **schema.fields})
    return {"title": name, "description": f"Printed by: {printed}.", **fields}


def _definitions(schema: OutputSchema) -> dict[str, Any]:
    text = json.dumps(dict(schema.fields))
    used = {name: each for name, each in schema.definitions.items() if f'"#/$defs/{name}"' in text}
    return {"$defs": schema.definitions if schema.file else used} if used else {}


_Pair = tuple[str, Cell]
_TYPES: Final = (*ENTITY_TYPES, *THRESHOLD_TYPES, GROUP)
_BRANCHES: Final = ("anyOf", "oneOf")
DEFAULTS: Final = "defaults"
"""The column that names the entity types of which an entity is the default, a blank between them."""


def headers(schema: OutputSchema) -> tuple[str, ...]:
    """Return the titles of the columns, in order."""
    (first,) = _rows(schema.definitions, schema.document, None, schema.rows, top=True)
    titles = tuple(title for title, _ in first)
    return schema.columns or titles


def flat_rows(schema: OutputSchema, document: Mapping[str, Any]) -> list[list[Cell]]:
    """Return the rows of a document below `headers`."""
    found = _rows(schema.definitions, schema.document, document, schema.rows, top=True)
    if schema.columns:
        return [[dict(row)[title] for title in schema.columns] for row in found]
    return [[cell for _, cell in row] for row in found]


def _plain(definitions: Schema, schema: Schema) -> Schema:
    """Return the schema without null and references, with the notes of the outer one."""
    branches = [each for word in _BRANCHES for each in schema.get(word, ()) if each != {"type": "null"}]
    if len(branches) == 1:
        notes = {name: schema[name] for name in (PREFIX, SEPARATOR) if name in schema}
        return _plain(definitions, {**branches[0], **notes})
    if "$ref" in schema and schema["$ref"] != ENTITY["$ref"]:
        return _plain(definitions, definitions[schema["$ref"].rpartition("/")[2]])
    return schema


def _rows(
    definitions: Schema, schema: Schema, value: Any, path: Sequence[str], *, top: bool = False
) -> Iterator[list[_Pair]]:
    schema = _plain(definitions, schema)
    if not path:
        yield list(_cells(definitions, schema, value))
        return
    name, *rest = path
    own = [] if top else list(_cells(definitions, schema, value, skip=name))
    inner = _plain(definitions, schema["properties"][name])
    if value is None:  # for the titles, or below an empty list
        children: list[Any] = [None]
    else:
        found = value.get(name)
        items = list(found.items()) if isinstance(found, Mapping) and COLUMNS in inner else found
        children = [items] if isinstance(items, Mapping) else list(items or ())
        if not children and not top:
            children = [None]
    for child in children:
        if COLUMNS in inner:
            below: Iterator[list[_Pair]] = iter([list(_named(definitions, inner, child))])
        else:
            below = _rows(definitions, inner.get("items", inner), child, rest)
        yield from ([*own, *row] for row in below)


def _named(definitions: Schema, schema: Schema, item: tuple[str, Any] | None) -> Iterator[_Pair]:
    """Yield the cells of one name of an object with free names."""
    key, title = schema[COLUMNS]
    name, value = (None, None) if item is None else item
    yield key, name
    inner = _plain(definitions, schema["additionalProperties"])
    yield from _cells(definitions, inner, value) if "properties" in inner else [(title, value)]


def _cells(
    definitions: Schema, schema: Schema, value: Mapping[str, Any] | None, *, skip: str = "", prefix: str = ""
) -> Iterator[_Pair]:
    for name, each in schema["properties"].items():
        if name != skip:
            yield from _cell(definitions, each, None if value is None else value.get(name), f"{prefix}{name}", prefix)


def _cell(definitions: Schema, schema: Schema, value: Any, title: str, prefix: str) -> Iterator[_Pair]:
    schema = _plain(definitions, schema)
    inner = f"{prefix}{schema[PREFIX]}" if PREFIX in schema else f"{title}_"
    if schema.get("$ref") == ENTITY["$ref"]:
        yield from _entity(value, inner)
    elif SEPARATOR in schema:
        yield title, schema[SEPARATOR].join(map(str, value)) if isinstance(value, list | tuple) else value
    elif "properties" in schema:
        yield from _cells(definitions, schema, value, prefix=inner)
    elif schema.get("type") not in ("array", "object"):
        yield title, value


def _entity(value: Mapping[str, str | None] | None, prefix: str) -> Iterator[_Pair]:
    names = value or {}
    yield from ((f"{prefix}{_title(kind)}", names.get(kind)) for kind in _TYPES)
    defaults = [_title(kind) for kind in _TYPES if kind in names and names[kind] is None]
    yield f"{prefix}{DEFAULTS}", None if value is None else " ".join(defaults)


def _title(kind: str) -> str:
    return kind.replace("-", "_")
