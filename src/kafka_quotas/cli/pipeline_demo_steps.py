"""The commands that the pipeline's demo runs after its traffic was recorded, in their order."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_quotas.core.quota_config import QuotaWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """Two defaults for bytes/s written, as quota files have them."""

    tight: str
    generous: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command with a heading; `is_distributed` ones run on Spark where that is to be had, else on this machine."""

    title: str
    arguments: tuple[str, ...]
    is_distributed: bool = False

    def command(self, *, has_spark: bool) -> list[str]:
        """The arguments of the command."""
        if not self.is_distributed:
            return list(self.arguments)
        return [*self.arguments, "--engine", "spark" if has_spark else "local"]


def proposals(out: Path, default_of: str, proposed: Proposed) -> None:
    """Nothing; the two proposals are files in the folder."""
    for name, value in asdict(proposed).items():
        text = f"entries:\n  - {{entity: {{{default_of}: null}}, quotas: {{producer_byte_rate: {value}}}}}\n"
        (out / f"{name}.yaml").write_text(text, encoding="utf-8")


def steps(out: Path, logs: Path, in_force: Path, window: QuotaWindow, default_of: str) -> Iterator[Step]:
    """The steps from request logs to quotas that are set."""
    data, quotas, store = str(out / "data"), str(out / "recommended.yaml"), f"local:{out / 'quotas.db'}"
    windows = ("--quota-window-num", str(window.samples), "--quota-window-size-seconds", str(window.window_s))
    pattern = f"{logs}/{{broker_id}}/*.log*"
    advice = ("--default-of", default_of, "--clients-share", "0.2", *windows)
    yield Step(
        title="Read the request log into tables",
        arguments=("pipeline", "ingest", "--source", pattern, "--timezone", "UTC", "--out", data),
    )
    yield Step(
        title="Profile: who uses what",
        arguments=("pipeline", "usage", data, "--quotas", str(in_force), *windows, "--limit", "10"),
        is_distributed=True,
    )
    yield Step(
        title="What would two other sets of quotas have done?",
        arguments=(
            *("pipeline", "replay", data, "--quotas", str(out / "tight.yaml"), str(out / "generous.yaml")),
            *("--model", "closed", *windows, "--limit", "10"),
        ),
    )
    yield Step(
        title="Which quotas to set",
        arguments=("pipeline", "recommend", data, *advice, "--file", quotas),
    )
    yield Step(
        title="The same for people who don't run Kafka",
        arguments=(
            *("pipeline", "report", data, "--quotas", str(in_force), *advice),
            *("--out", str(out / "report.html")),
        ),
    )
    yield Step(title="Set them, in a store of the demo's own", arguments=("apply", quotas, "--store", store))
    yield Step(title="What is set now", arguments=("describe", "--store", store))
