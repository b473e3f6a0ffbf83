"""`shard.json.gz`: what one shard of a load test planned and recorded, exactly, for `load-test merge`.

The plan is kept without its properties, which may hold passwords. Recorders are kept whole: every cell, slot and entry.
"""

import gzip
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json
from kafka_quotas.loadtest.plan.plan import LoadPlan
from kafka_quotas.loadtest.record.merging import COUNTS, HISTOGRAMS, TRACES
from kafka_quotas.loadtest.record.recorder import Recorder, RecorderRoom
from kafka_quotas.loadtest.record.timeline import Slot, Timeline
from kafka_quotas.loadtest.record.traces import Response
from kafka_quotas.loadtest.result.document import run_document
from kafka_quotas.loadtest.result.reading import MAX_RUN_BYTES, result_of
from kafka_quotas.loadtest.result.result import LoadResult

SHARD_FILE: Final = "shard.json.gz"
SHARD_SCHEMA: Final = "kafka-quotas.load-shard/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The plan and the measurements of one shard."""

    plan: LoadPlan
    result: LoadResult
    """Its result, whose clients have their recorders."""
    expectations: tuple[str, ...] = ()
    """The thresholds that the whole load is judged by, as they were written."""


def write_shard(shard: Shard, path: Path) -> None:
    """Write a shard to a file.

    Raises:
        OSError: The file can't be written.
    """
    document = {
        "schema": SHARD_SCHEMA,
        "plan": _plain(_without_properties(shard.plan)),
        "expectations": list(shard.expectations),
        "run": run_document(shard.result),
        "recorders": [_recorder_columns(each.recorder) for each in shard.result.entities if each.recorder is not None],
    }
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=3) as file:
        json.dump(document, file)


def read_shard(folder: Path) -> Shard:
    """Return the shard in a folder that `load-test` wrote with `--shard` and `--out`.

    Raises:
        UsageError: There is no shard in it.
        KafkaQuotasError: Its file can't be read or is no shard.
    """
    path = folder / SHARD_FILE if folder.is_dir() else folder
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            document = load_json(file.read(MAX_RUN_BYTES))
    except FileNotFoundError as error:
        raise UsageError(f"no shard of a load test in {folder}", hint="it is what --shard writes to --out") from error
    except (OSError, EOFError, ValueError) as error:
        raise KafkaQuotasError(f"can't read {path}: {error}", hint=f"is it whole? {SHARD_FILE} of load-test") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SHARD_SCHEMA:
        raise KafkaQuotasError(f"{path} is a {schema}, not a {SHARD_SCHEMA}", hint="write it with this version")
    try:
        return _shard(document)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, UsageError, StopIteration) as error:
        raise KafkaQuotasError(f"{path} is not a shard of a load test: {error}", hint="write it again") from error


def _shard(document: Mapping[str, Any]) -> Shard:
    plan: LoadPlan = _built(LoadPlan, document["plan"])
    result = result_of(document["run"])
    entities = tuple(
        replace(entity, recorder=_recorder(columns, plan))
        for entity, columns in zip(result.entities, document["recorders"], strict=True)
    )
    return Shard(plan=plan, result=replace(result, entities=entities), expectations=tuple(document["expectations"]))


def _without_properties(plan: LoadPlan) -> LoadPlan:
    return replace(plan, properties=(), entities=tuple(replace(each, properties=()) for each in plan.entities))


def _plain(value: Any) -> Any:
    """Return a value of a plan as JSON has it."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Fraction) else value


def _built(kind: Any, data: Any) -> Any:
    """Return a value of a type that plans have, from its JSON."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kinds = [each for each in typing.get_args(kind) if each is not types.NoneType]
        return None if data is None else _built(_fitting(kinds, data), data)
    if typing.get_origin(kind) is tuple:
        first, *others = typing.get_args(kind)
        items = [first] * len(data) if others == [...] else [first, *others]
        return tuple(_built(item, each) for item, each in zip(items, data, strict=True))
    if is_dataclass(kind):
        types_of = typing.get_type_hints(kind)
        return typing.cast("Any", kind)(**{name: _built(types_of[name], value) for name, value in data.items()})
    return kind(data)


def _fitting(kinds: list[Any], data: Any) -> Any:
    """Return the kind whose fields the data has, the only one where there is no choice."""
    return next(each for each in kinds if len(kinds) == 1 or {field.name for field in fields(each)} == set(data))


def _recorder_columns(recorder: Recorder) -> dict[str, Any]:
    responses, slots = list(recorder.responses), recorder.timeline.slots()
    return {
        "histograms": {
            name: {"cells": sorted(each.counts.items()), "bounds": sorted(each.bounds.items())}
            for name in HISTOGRAMS
            for each in (getattr(recorder, name),)
        },
        "traces": {
            name: {"resolution_ms": each.resolution_ms, "entries": each.entries()}
            for name in TRACES
            for each in (getattr(recorder, name),)
        },
        "responses": {field.name: [getattr(each, field.name) for each in responses] for field in fields(Response)},
        "slot_ms": recorder.timeline.slot_ms,
        "slots": [asdict(slot) for slot in slots],
        "counts": {name: getattr(recorder, name) for name in COUNTS},
        "failures": dict(recorder.failures),
    }


def _recorder(columns: Mapping[str, Any], plan: LoadPlan) -> Recorder:
    responses = columns["responses"]
    entries = max(len(each["entries"]) for each in columns["traces"].values())
    recorder = Recorder(
        start_ns=0,
        measure_from_ns=0,
        window_ms=plan.window_ms,
        room=RecorderRoom(entries=max(entries, 1), responses=len(responses["t_ms"])),
    )
    for name, kept in columns["histograms"].items():
        getattr(recorder, name).take(dict(kept["cells"]), bounds=dict(kept["bounds"]))
    for name, kept in columns["traces"].items():
        trace = getattr(recorder, name)
        trace.resolution_ms = kept["resolution_ms"]
        for t_ms, size in kept["entries"]:
            trace.add(t_ms, size)
    for row in zip(*(responses[field.name] for field in fields(Response)), strict=True):
        recorder.responses.add(*row)
    slots = [Slot(**slot) for slot in columns["slots"]]
    recorder.timeline = Timeline.of(slots, slot_ms=columns["slot_ms"], window_ms=plan.window_ms)
    for name, count in columns["counts"].items():
        setattr(recorder, name, count)
    recorder.failures.update(columns["failures"])
    return recorder
