"""The examples that come with the program: what there is, and copies of them in a folder of the user's own."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError

EXAMPLES: Final[Mapping[str, str]] = {
    "ci": "a workflow that comments on pull requests what they change, and a hook for pre-commit",
    "contexts.toml": "named clusters with their login, for kafka-quotas context",
    "daemon": "daemon.toml (for daemon run --config), a policy file, their schemas, alerts and a dashboard",
    "events-kip13.jsonl": "events of byte rates, for throttle simulate",
    "events-kip599.csv": "events of topic changes, for throttle simulate",
    "events-request.csv": "events of request times, for throttle simulate",
    "grafana": "a dashboard of the brokers' quota metrics",
    "kubernetes": "manifests that run the daemon",
    "load-test-run.schema.json": "the schema of run.json",
    "other-tools": "quotas as kafka-configs, Strimzi and Terraform have them, for import and diff",
    "pipeline": "a notebook, a DAG of Airflow and a Declarative Pipeline with the pipeline's jobs",
    "prometheus": "rules of the JMX exporter, alerts, and names of metrics",
    "quota-values": "values for the files in quotas",
    "quotas": "declared quotas, for diff and apply",
    "output.schema.json": "the schema of what commands print with --output json and yaml",
    "quotas.schema.json": "the schema of files of quotas",
    "request-log": "request logs of two brokers with their quotas, for the pipeline",
    "scenario.schema.json": "the schema of scenarios",
    "systemd": "units of the daemon and a timer for revert --due",
}


def examples_folder() -> Path:
    """Return the folder of the examples: in the installed package, or beside the sources of a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / "quotas.schema.json").is_file():
            return folder
    raise KafkaQuotasError("the examples are not installed", hint="install kafka-quotas from its wheel, or a checkout")


def copy_examples(names: Sequence[str], target: Path) -> tuple[Path, ...]:
    """Copy examples, all if none is named, into a folder that is made, and return the copied files."""
    unknown = [name for name in names if name not in EXAMPLES]
    if unknown:
        raise UsageError(f"no example is called {unknown[0]!r}", hint="kafka-quotas examples list shows them")
    source = examples_folder()
    files = [path for name in names or EXAMPLES for path in _files(source / name)]
    copies = [target / path.relative_to(source) for path in files]
    for copy in copies:
        if copy.exists():
            raise UsageError(f"{copy} is there already", hint="nothing was copied; --to names another folder")
    try:
        for path, copy in zip(files, copies, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    except OSError as error:
        raise KafkaQuotasError(f"can't copy to {target}: {error.strerror or error}") from error
    return tuple(copies)


def _files(path: Path) -> Iterator[Path]:
    return (each for each in sorted(path.rglob("*")) if each.is_file()) if path.is_dir() else iter((path,))
