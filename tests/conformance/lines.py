"""The lines of the conformance files, and the rules by which their figures are compared.

A test module says `@pytest.mark.conformance("validation.jsonl")` and takes the argument `line`; it then runs once per
line of that file, in the folder of `--conformance-data`.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.java import double_text
from kafka_quotas.core.model.entity import Entity

OWN_DATA = Path(__file__).parent / "data"
"""The folder that comes with the source."""

Line = dict[str, Any]
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def conformance_lines(file: Path) -> list[Line]:
    """The lines of a file as objects, in order.

    Blank lines are none.
    """
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def as_kafka_4_3_says(line: Line) -> Line:
    """The line of config_command.jsonl with the text of 4.3.1 for its error, where that release has changed it.

    Texts are from `kafka.admin.ConfigCommand` 4.3.1; `integration/cli/test_kafka_configs_original` compares them.
    """
    texts = json.loads((Path(__file__).parent / "kafka_4_3_texts.json").read_text(encoding="utf-8"))
    text = texts.get(line["id"])
    if text is None:
        return line
    return {**line, "expect": {"error": {**line["expect"]["error"], "message": text, "message_contains": [text]}}}


def number(value: Any) -> Any:
    """A figure of a line: JSON has no NaN and infinities, they are texts there. None stays None."""
    return _NON_FINITE[value] if isinstance(value, str) else value


def figure(value: float | None) -> Any:
    """A figure as a line has it: NaN and infinities as texts, which are equal to themselves. None stays None."""
    return value if value is None or math.isfinite(value) else double_text(value)


def entity_of(value: dict[str, str | None] | list[list[str | None]]) -> Entity:
    """The entity of a line, from either form: an object or a list of pairs."""
    return Entity.from_mapping(value) if isinstance(value, dict) else Entity.from_pairs((str(t), n) for t, n in value)


def agrees(actual: float | None, expected: Any) -> bool:
    """Whether a measured figure is the expected one, within 1e-9 of the larger and never closer than 1e-9."""
    wanted = number(expected)
    if actual is None or wanted is None:
        return actual is None and wanted is None
    if math.isnan(wanted) or math.isnan(actual):
        return math.isnan(wanted) and math.isnan(actual)
    return math.isclose(actual, wanted, rel_tol=1e-9, abs_tol=1e-9)


def unordered(message: str) -> str:
    """An error text with the names it lists in braces sorted: their order is free."""
    return re.sub(r"\{(.*)\}", lambda listed: "{" + ", ".join(sorted(listed[1].split(", "))) + "}", message)


def require_verdict(verdict: InvalidQuotaError | None, expect: Line) -> None:
    """Check what something was refused for, if it was."""
    if expect["ok"]:
        assert verdict is None
    else:
        assert verdict is not None
        assert (verdict.code, unordered(verdict.message)) == (expect["error"], unordered(expect["message"]))


def only_localhost(host: str) -> bool:
    """The name lookup of the machine the lines were made on, which had no network.

    Host names know no case.
    """
    return host.lower() == "localhost"
