"""The demo told step by step, on the stream it is given."""

from typing import TextIO

from kafka_quotas.cli.quantity import in_words
from kafka_quotas.cli.render import Cell, Column, Table, is_terminal, print_table, write
from kafka_quotas.commands.alter import AlterResult
from kafka_quotas.commands.demo import CAST, DURATION_S, WINDOW, Actor, Stage
from kafka_quotas.commands.effective import EffectiveResult
from kafka_quotas.core.effective import EffectiveQuota
from kafka_quotas.core.units import format_bytes
from kafka_quotas.loadtest.progress import RunProgress, Watcher


class Narrator:
    """Tells the demo as it goes."""

    def __init__(self, stream: TextIO, watcher: Watcher | None) -> None:
        self._stream = stream
        self._watcher = watcher
        self._loading = False
        heading(stream, "Quotas, in a local store")

    def quota_is_set(self, actor: Actor, result: AlterResult) -> None:
        """Nothing; the command that does the same is shown."""
        for change in result.changes:
            value = format_bytes(change.new or 0).replace(" ", "")
            self._tell(f"$ kafka-quotas alter --client {actor.client_id} --add-config {change.key}={value}")

    def stage_is_set(self, stage: Stage) -> None:
        """Nothing; what runs is listed."""
        heading(self._stream, "The daemon, between clients and cluster")
        self._tell(f"clients -> daemon {stage.daemon} -> embedded cluster {stage.cluster}")
        self._tell(f"quota window {window_text()} (Kafka's default is 11 x 1 s: too long for a demo)")

    def applies(self, result: EffectiveResult) -> None:
        """Nothing; the effective quotas are shown."""
        heading(self._stream, "What applies to each client")
        self._tell("$ kafka-quotas describe --effective --client ...")
        print_table(_limits(result), self._stream)

    def load_runs(self, progress: RunProgress) -> None:
        """Nothing; the first call says what runs, the live view shows all of them."""
        if not self._loading:
            self._loading = True
            heading(self._stream, f"Load for {DURATION_S:.0f} s, after a window of warm-up")
            for actor in CAST:
                offers = "all it can" if actor.offers is None else f"{format_bytes(actor.offers)}/s"
                quota = "no quota" if actor.quota is None else f"quota {format_bytes(actor.quota)}/s"
                self._tell(f"{actor.client_id:<10} {actor.direction.value}s {offers}, {quota}")
        if self._watcher is not None:
            self._watcher(progress)

    def _tell(self, text: str) -> None:
        write(f"  {text}", self._stream)
        self._stream.flush()


def heading(stream: TextIO, text: str) -> None:
    """Nothing; a heading is on the stream, bold where it is a terminal."""
    write("", stream)
    if not is_terminal(stream):
        write(text, stream)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for Rich
    from rich.text import Text  # noqa: PLC0415

    Console(file=stream, highlight=False).print(Text(text, style="bold"))


def window_text() -> str:
    """The demo's quota window in words."""
    return f"{WINDOW.samples} x {WINDOW.window_s} s"


def _limits(result: EffectiveResult) -> Table:
    """One row per client and limit; a client without any has one that says so."""
    rows: list[list[Cell]] = []
    for outcome in result.outcomes:
        limited = [quota for quota in outcome.quotas if quota.limit is not None]
        name = str(outcome.client.client_id)
        rows += [[name, *_limit(quota)] for quota in limited] or [[name, "(any)", "unlimited", "", ""]]
    titles = ("client-id", "key", "limit", "level", "set on")
    return Table(columns=[Column(title=title, figures=title == "limit") for title in titles], rows=rows)


def _limit(quota: EffectiveQuota) -> list[Cell]:
    return [quota.key.name, in_words(quota.key.name, quota.limit or 0.0), str(quota.level), str(quota.entity)]
