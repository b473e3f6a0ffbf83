"""`run.json` and `shard.json.gz`: a run's result, and what one shard planned and recorded, as files and back.

The document of a run has plain figures with units in their names, and `examples/load-test-run.schema.json` is its
schema. `_RUN` and `_CLIENT` say where each field of a result stands in it, for writing and for reading; series are
columns, one list per figure. A shard keeps its plan without properties, which may hold passwords, and its recorders
whole.

Invariant: the document of a result that was read equals the document that was read.
"""

import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.loadtest.measurement.delivery import Delivery
from kafka_quotas.loadtest.measurement.histogram import LatencySummary
from kafka_quotas.loadtest.measurement.recorder import ThrottleSummary, recorder_document, recorder_of
from kafka_quotas.loadtest.measurement.traces import Slot
from kafka_quotas.loadtest.plan.client_verdict import ClientVerdict
from kafka_quotas.loadtest.plan.plan import LoadPlan
from kafka_quotas.loadtest.plan.workload import Flood, MutationFlood, RequestFlood
from kafka_quotas.loadtest.results.prediction import Prediction
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult, ProbeResult, WindowSample

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]

RUN_NOUN = "load-test"
RUN_VERSION = 3
"""Name and version of the document's schema, which `cli.output.render` writes in front: `kafka-quotas.load-test/3`."""
SCHEMA = f"kafka-quotas.{RUN_NOUN}/{RUN_VERSION}"
RUN_FILE = "run.json"
REPEAT = "repeat-"
"""What the names of the folders of repeats begin with."""
SHARD_FILE: Final = "shard.json.gz"
SHARD_SCHEMA: Final = "kafka-quotas.load-shard/1"
MAX_RUN_BYTES: Final = 1024**3
"""Longest `run.json` or shard that is read."""
_SERIES_DIGITS: Final = 3
_DIGITS: Final[Mapping[type[Any], Mapping[str, int]]] = {
    LatencySummary: {"mean_us": 3},
    ThrottleSummary: {"avg_ms": 3},
    ClientVerdict: {"achieved": 3, "offered": 3, "ratio": 6, "lower": 6, "upper": 6, "span_ms": 0, "settled_ms": 3},
}
"""The digits after the point of each figure that is rounded."""
_DERIVED: Final[Mapping[type[Any], str]] = {Delivery: "state", Prediction: "state", ThrottleSummary: "avg_ms"}
"""The property that a document has of a record beside its fields."""
_Record = TypeVar("_Record")


class _Codec(NamedTuple):
    written: Callable[[Any], JsonValue]
    read: Callable[[Any], Any] = lambda value: value


_Place = tuple[str, str, _Codec]
"""The path in a document, that of the attribute, and how the two become each other."""


def _plain(value: Any) -> Any:
    kind = type(value)
    if is_dataclass(value):
        names = [*(each.name for each in fields(value)), *filter(None, [_DERIVED.get(kind)])]
        digits = _DIGITS.get(kind, {})
        return {name: _rounded(_plain(getattr(value, name)), digits.get(name)) for name in names}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Fraction) else value


def _rounded(value: Any, digits: int | None) -> Any:
    """Return a figure with this number of digits after the point, None for an infinite bound."""
    if digits is None or value is None:
        return value
    return None if math.isinf(value) else round(value, digits or None)


def _columns(kind: type[Any], *names: str) -> _Codec:
    """Return the codec of a series, whose columns have the names of the record's fields or else these."""
    names = names or tuple(each.name for each in fields(kind))

    def written(rows: Sequence[Any]) -> JsonValue:
        columns = {name: [getattr(row, name) for row in rows] for name in names}
        return {
            name: [_rounded(each, _SERIES_DIGITS) if isinstance(each, float) else each for each in column]
            for name, column in columns.items()
        }

    def read(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        lists = [columns[name] for name in names]
        if len({len(each) for each in lists}) > 1:
            raise ValueError("its series differ in length")
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]

    return _Codec(written, read)


def _digits(digits: int) -> _Codec:
    return _Codec(lambda value: _rounded(value, digits))


_PLAIN: Final = _Codec(_plain)
_PAIRS: Final = _Codec(dict, lambda names: list(names.items()))
_SECOND_COLUMNS: Final = _columns(
    Slot, "rate", "records", "responses", "throttled", "throttle_sum_ms", "throttle_max_ms", "failed", "dropped"
)


def _same(*names: str, inside: str = "") -> tuple[_Place, ...]:
    return tuple((f"{inside}{name}", name, _PLAIN) for name in names)


_RUN: Final[Sequence[_Place]] = (
    *_same("title"),
    ("run_id", "run_id", _Codec(lambda number: f"{number:016x}", lambda text: int(text, 16))),
    *_same("bootstrap", "started_ms"),
    ("elapsed_s", "elapsed_s", _digits(3)),
    *_same("warmup_s"),
    ("quota_window/quota.window.num", "window.samples", _PLAIN),
    ("quota_window/quota.window.size.seconds", "window.window_s", _PLAIN),
    ("cpu/process_share", "cpu.process", _digits(4)),
    ("cpu/python_share", "cpu.python", _digits(4)),
    ("cpu/cores", "cpu.cores", _PLAIN),
    ("cpu/late_ms", "cpu.late_ms", _digits(3)),
    *_same("control_factor", "interrupted", "ok", "state", "judgements", "warnings", "outages", "restarts"),
    ("entities", "entities", _Codec(lambda all_: [*map(_client_document, all_)], lambda all_: [*map(_client, all_)])),
    ("probes", "probes", _columns(ProbeResult)),
)
"""Where each field or property of a result is in its document, in order."""
_CLIENT: Final[Sequence[_Place]] = (
    ("user", "name.user", _PLAIN),
    ("client_id", "name.client_id", _PLAIN),
    ("does", "workload", _PLAIN),
    *_same("client", "topic", "control", "enforcers", "unit", "ok"),
    ("quotas", "quotas", _PAIRS),
    *_same("verdict"),
    *_same("sent", "acked", "unfinished", "dropped", inside="records/"),
    ("records/failed", "failures", _PAIRS),
    *_same("books", "delivery", "payload_bytes"),
    ("wire_ratio", "wire_ratio", _digits(6)),
    *_same("service", "schedule_delay", "response", inside="latency/"),
    ("latency/response_solo", "solo", _PLAIN),
    ("quota_effect", "effect", _PLAIN),
    *_same("throttle", "prediction", "sample_s"),
    ("seconds", "seconds", _SECOND_COLUMNS),
    ("windows", "windows", _columns(WindowSample)),
)
"""Where each field or property of a client's result is in its document, in order."""


def run_document(result: LoadResult) -> dict[str, JsonValue]:
    """Return the whole result, with times and rates in the units that are named."""
    return _written(result, _RUN)


def _client_document(client: ClientResult) -> dict[str, Any]:
    document = _written(client, _CLIENT)
    return {**document, "seconds": {"first": client.seconds[0].second if client.seconds else 0, **document["seconds"]}}


def _client(document: Mapping[str, Any]) -> dict[str, Any]:
    seconds, sample_s = document["seconds"], document["sample_s"]
    read = _read(document, ClientResult, _CLIENT)
    for index, second in enumerate(read["seconds"]):
        second["start_ms"] = (seconds["first"] + int(index * sample_s)) * 1000
    return read


def _written(record: object, places: Sequence[_Place]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for place, attribute, codec in places:
        *folders, name = place.split("/")
        target = reduce(lambda part, folder: part.setdefault(folder, {}), folders, document)
        target[name] = codec.written(attrgetter(attribute)(record))
    return document


def _read(document: Mapping[str, Any], kind: type[Any], places: Sequence[_Place]) -> dict[str, Any]:
    known = {each.name for each in fields(kind)}
    values: dict[str, Any] = {}
    for place, attribute, codec in places:
        *outer, name = attribute.split(".")
        if (*outer, name)[0] in known:
            target = reduce(lambda part, each: part.setdefault(each, {}), outer, values)
            target[name] = codec.read(reduce(lambda part, each: part[each], place.split("/"), document))
    return values


def _converted(value: Any, kind: type[_Record]) -> _Record:
    try:
        return msgspec.convert(value, kind, dec_hook=_hooked)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _hooked(kind: type[Any], value: Any) -> Any:
    """Return a value of a type that msgspec leaves to us: a fraction, or one of the two floods."""
    if kind is Flood:
        return _converted(value, RequestFlood if "api" in value else MutationFlood)
    return kind(value)


def result_of(document: Mapping[str, Any]) -> LoadResult:
    """Return the result that a document holds."""
    return _converted(_read(document, LoadResult, _RUN), LoadResult)


def read_runs(folder_or_file: Path) -> tuple[LoadResult, ...]:
    """Return the result in a file or folder, or those of the repeats in a folder.

    Raises:
        UsageError: There is no such file, and no repeat.
        KafkaQuotasError: A file can't be read or is no such document.
    """
    repeats = [path.parent for path in sorted(folder_or_file.glob(f"{REPEAT}*/{RUN_FILE}"))]
    if repeats and not (folder_or_file / RUN_FILE).exists():
        return tuple(map(read_run, repeats))
    return (read_run(folder_or_file),)


def read_run(folder_or_file: Path) -> LoadResult:
    """Return the result in a file, or in the `run.json` of a folder.

    Raises:
        UsageError: There is no such file.
        KafkaQuotasError: The file can't be read or is no such document.
    """
    return _kept(folder_or_file, RUN_FILE, SCHEMA, result_of, noun="run")


def _kept(place: Path, name: str, schema: str, made: Callable[[Mapping[str, Any]], _Record], *, noun: str) -> _Record:
    path = place / name if place.is_dir() else place
    try:
        if name.endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                text = file.read(MAX_RUN_BYTES)
        else:
            text = read_text(path, max_bytes=MAX_RUN_BYTES)
    except FileNotFoundError as error:
        raise UsageError(
            f"no {noun} of a load test in {place}", hint="name the folder that load-test wrote with --out"
        ) from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = "it is no text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise KafkaQuotasError(f"can't read {path}: {why}", hint=f"is it the {name} of a load test?") from error
    try:
        document = load_json(text)
        found = document["schema"]
        if found == schema:
            return made(document)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, UsageError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise KafkaQuotasError(
            f"{path} is not a {noun} of a load test: {reason}", hint=f"its schema is {schema}"
        ) from error
    raise KafkaQuotasError(f"{path} is a {found}, not a {schema}", hint="run the load test again with this version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The plan and the measurements of one shard."""

    plan: LoadPlan
    result: LoadResult
    """Its result, whose clients have their recorders."""
    expectations: tuple[str, ...] = ()
    """The thresholds that the whole load is judged by, as they were written."""


def write_shard(shard: Shard, path: Path) -> None:
    """Write a shard to a file."""
    loads = tuple(replace(each, properties=()) for each in shard.plan.entities)
    document = {
        "schema": SHARD_SCHEMA,
        "plan": _plain(replace(shard.plan, properties=(), entities=loads)),
        "expectations": list(shard.expectations),
        "run": run_document(shard.result),
        "recorders": [recorder_document(each.recorder) for each in shard.result.entities if each.recorder is not None],
    }
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=3) as file:
        json.dump(document, file)


def read_shard(folder: Path) -> Shard:
    """Return the shard in a folder that `load-test` wrote with `--shard` and `--out`.

    Raises:
        UsageError: There is no shard in it.
        KafkaQuotasError: Its file can't be read or is no shard.
    """
    return _kept(folder, SHARD_FILE, SHARD_SCHEMA, _shard, noun="shard")


def _shard(document: Mapping[str, Any]) -> Shard:
    plan = _converted(document["plan"], LoadPlan)
    result = result_of(document["run"])
    clients = tuple(
        replace(client, recorder=recorder_of([kept], window_ms=plan.window_ms))
        for client, kept in zip(result.entities, document["recorders"], strict=True)
    )
    return Shard(plan=plan, result=replace(result, entities=clients), expectations=tuple(document["expectations"]))
