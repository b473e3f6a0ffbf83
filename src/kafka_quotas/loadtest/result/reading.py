"""Reading of a result from its document, the reverse of `result.document.run_document`.

Invariant: the document of a result that was read equals the document that was read.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.formats.documents import load_json, read_text
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.plan.plan import ClientName
from kafka_quotas.loadtest.plan.workload import ClientKind, Workload
from kafka_quotas.loadtest.record.books import Books
from kafka_quotas.loadtest.record.delivery import Delivery
from kafka_quotas.loadtest.record.histogram import LatencySummary
from kafka_quotas.loadtest.record.recorder import ThrottleSummary
from kafka_quotas.loadtest.result.document import (
    BROKER_COLUMNS,
    NOUN,
    PROBE_COLUMNS,
    SECOND_COLUMNS,
    VERSION,
    WINDOW_COLUMNS,
)
from kafka_quotas.loadtest.result.effect import QuotaEffect
from kafka_quotas.loadtest.result.prediction import Prediction, PredictionSource
from kafka_quotas.loadtest.result.result import (
    BrokerSample,
    ClientResult,
    CpuUse,
    LoadResult,
    ProbeResult,
    SecondSample,
    WindowSample,
)
from kafka_quotas.loadtest.result.verdict import ClientVerdict, ObservationKind

RUN_FILE = "run.json"
REPEAT = "repeat-"
"""What the names of the folders of repeats begin with."""
SCHEMA = f"kafka-quotas.{NOUN}/{VERSION}"
_Sample = TypeVar("_Sample", SecondSample, WindowSample, BrokerSample, ProbeResult)


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


MAX_RUN_BYTES: Final = 1024**3
"""Longest `run.json` or shard that is read."""


def read_run(folder_or_file: Path) -> LoadResult:
    """Return the result in a file, or in the `run.json` of a folder.

    Raises:
        UsageError: There is no such file.
        KafkaQuotasError: The file can't be read or is no such document.
    """
    path = folder_or_file / RUN_FILE if folder_or_file.is_dir() else folder_or_file
    try:
        text = read_text(path, max_bytes=MAX_RUN_BYTES)
    except FileNotFoundError as error:
        raise UsageError(
            f"no run of a load test in {folder_or_file}", hint="name the folder that load-test wrote with --out"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise KafkaQuotasError(f"can't read {path}: {reason}", hint="is it the run.json of a load test?") from error
    try:
        document = load_json(text)
        schema = document["schema"]
        if schema == SCHEMA:
            return result_of(document)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise KafkaQuotasError(
            f"{path} is not a run of a load test: {reason}", hint=f"its schema is {SCHEMA}"
        ) from error
    raise KafkaQuotasError(
        f"{path} is a {schema}, not a {SCHEMA}",
        hint="run the load test again with this version" if str(schema).startswith(f"kafka-quotas.{NOUN}/") else None,
    )


def result_of(data: Mapping[str, Any]) -> LoadResult:
    """Return the result that a document holds.

    Raises:
        ValueError: It is no such document. So does a KeyError, TypeError or AttributeError mean.
    """
    window, cpu = data["quota_window"], data["cpu"]
    return LoadResult(
        bootstrap=data["bootstrap"],
        run_id=int(data["run_id"], 16),
        title=data["title"],
        started_ms=data["started_ms"],
        elapsed_s=data["elapsed_s"],
        warmup_s=data["warmup_s"],
        window_samples=window["quota.window.num"],
        window_size_s=window["quota.window.size.seconds"],
        cpu=CpuUse(
            process=cpu["process_share"], python=cpu["python_share"], cores=cpu["cores"], late_ms=cpu["late_ms"]
        ),
        interrupted=data["interrupted"],
        control_factor=data["control_factor"],
        entities=tuple(_entity(each) for each in data["entities"]),
        judgements=tuple(
            Judgement(
                aspect=Aspect(each["aspect"]),
                entity=each["entity"],
                state=State(each["state"]),
                evidence=each["evidence"],
            )
            for each in data["judgements"]
        ),
        warnings=tuple(data["warnings"]),
        outages=tuple(data["outages"]),
        restarts=tuple(data["restarts"]),
        broker_samples=tuple(_rows(BrokerSample, data["broker_metrics"], BROKER_COLUMNS)),
        probes=tuple(_rows(ProbeResult, data["probes"], PROBE_COLUMNS)),
    )


def _entity(data: Mapping[str, Any]) -> ClientResult:
    records, latency, solo = data["records"], data["latency"], data["latency"]["response_solo"]
    return ClientResult(
        name=ClientName(user=data["user"], client_id=data["client_id"]),
        workload=Workload(data["does"]),
        client=ClientKind(data["client"]),
        topic=data["topic"],
        enforcers=data["enforcers"],
        verdict=_verdict(data["verdict"]),
        sent=records["sent"],
        acked=records["acked"],
        unfinished=records["unfinished"],
        dropped=records["dropped"],
        books=Books(**data["books"]),
        failures=tuple(records["failed"].items()),
        payload_bytes=data["payload_bytes"],
        wire_ratio=data["wire_ratio"],
        service=LatencySummary(**latency["service"]),
        schedule_delay=LatencySummary(**latency["schedule_delay"]),
        response=LatencySummary(**latency["response"]),
        throttle=ThrottleSummary(**_without(data["throttle"], "avg_ms")),
        sample_s=data["sample_s"],
        seconds=_seconds(data["seconds"], data["sample_s"]),
        windows=tuple(_rows(WindowSample, data["windows"], WINDOW_COLUMNS)),
        quotas=tuple(data["quotas"].items()),
        control=data["control"],
        solo=None if solo is None else LatencySummary(**solo),
        effect=None if data["quota_effect"] is None else _effect(data["quota_effect"]),
        delivery=None if data["delivery"] is None else Delivery(**_without(data["delivery"], "state")),
        prediction=None if data["prediction"] is None else _prediction(data["prediction"]),
    )


def _effect(data: Mapping[str, Any]) -> QuotaEffect:
    runs = {name: tuple(data[name]) for name in ("with_us", "without_us")}
    return QuotaEffect(**{**data, **runs})


def _seconds(data: Mapping[str, Any], sample_s: float) -> tuple[SecondSample, ...]:
    count, first = len(data["rate"]), data["first"]
    starts = [first + int(index * sample_s) for index in range(count)]
    return tuple(_rows(SecondSample, {**data, "second": starts}, ("second", *SECOND_COLUMNS)))


def _rows(kind: type[_Sample], columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> list[_Sample]:
    lists = [columns[name] for name in names]
    if any(len(first) != len(second) for first, second in pairwise(lists)):
        raise ValueError("its series differ in length")
    return [kind(**dict(zip(names, row, strict=True))) for row in zip(*lists, strict=True)]


def _verdict(data: Mapping[str, Any]) -> ClientVerdict:
    return ClientVerdict(**{**data, "kind": ObservationKind(data["kind"]), "span_ms": float(data["span_ms"])})


def _prediction(data: Mapping[str, Any]) -> Prediction:
    return Prediction(**{**_without(data, "state"), "source": PredictionSource(data["source"])})


def _without(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}
