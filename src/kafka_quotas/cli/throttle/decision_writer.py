"""Decisions of a replay, written while they are taken: a file of any length needs no more memory than a short one.

Invariants: each form is what `cli.output.render` writes for a listing (same names, plain numbers), but for its rows:
those of JSON and YAML are one line each. A replay that breaks off leaves a whole document, whose summary is null.
"""

import csv
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from kafka_quotas.cli.output.json_text import Json, json_text
from kafka_quotas.cli.output.render import SCHEMA_PREFIX, Output, cell_text, yaml_text
from kafka_quotas.commands.throttle.arithmetic import without_noise
from kafka_quotas.core.model.value_format import MS, format_amount
from kafka_quotas.core.quotas.simulation import SimulatedDecision

FIELDS = ("t_ms", "due_ms", "amount", "op", "attempt", "verdict", "level", "after", "window_ms", "throttle_ms")
_WIDTHS = (13, 10, 7, 3, 9, 11, 11, 8)
"""Together, with a blank between, 79 columns; a longer cell moves the rest of its row."""
NOUN = "throttle-simulate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of a replay's amounts and of its algorithm's levels.

    Both are empty for plain figures.
    """

    amount: str
    level: str


class DecisionWriter(ABC):
    """Writes a replay in one form."""

    @abstractmethod
    def decision(self, decision: SimulatedDecision) -> None:
        """Write the decision."""

    def end(self, summary: Mapping[str, Json], sentence: str) -> None:  # noqa: B027 - CSV has no totals
        """Write the totals, as data or as a sentence."""

    def break_off(self) -> None:  # noqa: B027 - lines alone are whole at any time
        """Complete what is written after a replay that ended early, in the writer's form."""


def decision_writer(
    output: Output, head: Mapping[str, Json], *, title: str, level: str, units: Units
) -> DecisionWriter:
    """Return the writer of a form, after it has written what precedes the decisions.

    `head` and `title` say what was replayed, to programs and to people. `level` is what the algorithm measures: rate or
    tokens.
    """
    match output:
        case Output.CSV:
            return _CsvWriter(sys.stdout)
        case Output.JSON | Output.YAML:
            return _DocumentWriter(sys.stdout, head, as_json=output is Output.JSON)
        case Output.TABLE | Output.MARKDOWN:
            return _TextWriter(sys.stdout, title, level, units, markdown=output is Output.MARKDOWN)


def verdict(decision: SimulatedDecision) -> str:
    """Return the outcome of an event: admitted, admitted and delayed, or refused."""
    if not decision.outcome.admitted:
        return "refused"
    return "delayed" if decision.outcome.throttle_ms > 0 else "admitted"


def decision_values(decision: SimulatedDecision) -> tuple[str | int | float | None, ...]:
    """Return the values of `FIELDS`."""
    outcome = decision.outcome
    return (
        decision.t_ms,
        decision.due_ms,
        decision.amount,
        decision.operation.value,
        decision.attempt,
        verdict(decision),
        without_noise(outcome.level),
        without_noise(outcome.after),
        outcome.window_ms,
        outcome.throttle_ms,
    )


class _CsvWriter(DecisionWriter):
    """Writes CSV without the totals."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow(FIELDS)

    def decision(self, decision: SimulatedDecision) -> None:
        self._writer.writerow([cell_text(value) for value in decision_values(decision)])


class _DocumentWriter(DecisionWriter):
    """Writes JSON or YAML: the head, the decisions, the totals."""

    def __init__(self, stream: TextIO, head: Mapping[str, Json], *, as_json: bool) -> None:
        self._stream, self._as_json, self._separator = stream, as_json, "\n"
        document: dict[str, Json] = {"schema": f"{SCHEMA_PREFIX}.{NOUN}/1", **head}
        if as_json:
            stream.write(json_text(document).removesuffix("\n}") + ',\n  "decisions": [')
        else:
            stream.write(yaml_text(document) + "decisions:")

    def decision(self, decision: SimulatedDecision) -> None:
        pairs = zip(FIELDS, decision_values(decision), strict=True)
        row = "{" + ", ".join(f'"{name}": {_scalar(value)}' for name, value in pairs) + "}"
        self._stream.write(f"{self._separator}    {row}" if self._as_json else f"\n- {row}")
        self._separator = ",\n"

    def end(self, summary: Mapping[str, Json], sentence: str) -> None:  # noqa: ARG002 - one signature for every form
        self._close(summary)

    def break_off(self) -> None:
        self._close(None)

    def _close(self, summary: Mapping[str, Json] | None) -> None:
        totals = json_text({"summary": summary}).removeprefix("{")
        self._stream.write("\n  ]," + totals + "\n" if self._as_json else "\n" + yaml_text({"summary": summary}))


def _scalar(value: str | float | None) -> str:
    return json.dumps(value) if isinstance(value, str | None) else cell_text(value)


class _TextWriter(DecisionWriter):
    """A table of fixed widths, or of Markdown, and a sentence at the end."""

    def __init__(self, stream: TextIO, title: str, level: str, units: Units, *, markdown: bool) -> None:
        self._stream, self._markdown = stream, markdown
        self._amount_unit, self._level_unit = units.amount, units.level
        stream.write(f"{title}\n\n")
        self._row(("time ms", "amount", "op", "try", "verdict", level, "after", "delay"))
        if markdown:
            self._stream.write("|" + "---|" * len(_WIDTHS) + "\n")
        else:
            self._row(tuple("-" * width for width in _WIDTHS))

    def decision(self, decision: SimulatedDecision) -> None:
        outcome = decision.outcome
        self._row(
            (
                str(decision.t_ms),
                self._figure(decision.amount, self._amount_unit),
                decision.operation.value,
                str(decision.attempt),
                verdict(decision),
                self._figure(outcome.level, self._level_unit),
                self._figure(outcome.after, self._level_unit),
                format_amount(outcome.throttle_ms, MS) if outcome.throttle_ms else "-",
            )
        )

    def end(self, summary: Mapping[str, Json], sentence: str) -> None:  # noqa: ARG002 - one signature for every form
        self._stream.write(f"\n{sentence}\n")

    def _figure(self, value: float, unit: str) -> str:
        return format_amount(value, unit).strip()

    def _row(self, cells: tuple[str, ...]) -> None:
        if self._markdown:
            self._stream.write("| " + " | ".join(cells) + " |\n")
            return
        line = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
        self._stream.write(line.rstrip() + "\n")
