"""Thresholds of the user, like those of k6: `achieved/quota in 0.9..1.05`, `entity(batch).response.p99 < 50ms`.

    [entity(NAME).]METRIC (< | <= | > | >= | == | !=) VALUE
    [entity(NAME).]METRIC in LOW..HIGH

Without `entity(..)` every client that has the metric must meet it. NAME is USER/CLIENT-ID or a client-id, and `control`
also names the control clients. Values carry the unit of their metric: `50ms`, `2s`, `5MB/s`, `0.9`, `90%`.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.loadtest.judge.metric import METRICS, Metric
from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
from kafka_quotas.loadtest.result.result import ClientResult, LoadResult

_FORM: Final = re.compile(
    r"(?:entity\((?P<entity>[^()]+)\)\.)?(?P<metric>[a-z_]+(?:/[a-z]+)?(?:\.[a-z0-9_]+)?)\s*"
    r"(?:(?P<operator><=|>=|==|!=|<|>)\s*(?P<value>\S+)|in\s+(?P<low>[^\s.]+(?:\.\d+[^\s.]*)?)\.\.(?P<high>\S+))"
)
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_EXAMPLES: Final = "examples: 'achieved/quota in 0.9..1.05', 'entity(app).response.p99 < 50ms', 'throttle.count > 0'"
_CONTROL: Final = "control"
_MOST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A threshold on a metric, for one client or all."""

    text: str
    """The threshold as the user wrote it."""
    entity: str | None
    """The name of the client, None for all."""
    metric: Metric
    comparison: str
    """The operator, or `in` for a range."""
    low: float
    """The value, or the lower bound of the range."""
    high: float
    """The upper bound of the range."""

    def met_by(self, value: float) -> bool:
        """Return whether a value of the metric meets it."""
        if self.comparison == "in":
            return self.low <= value <= self.high
        return _COMPARISONS[self.comparison](value, self.low)

    def figures(self, result: LoadResult) -> tuple[float, ...]:
        """Return the metric of each client in question that has it."""
        return tuple(value for _, value in self._values(result))

    def judge(self, result: LoadResult) -> Judgement:
        """Return the judgement, which is met where all clients in question meet it, and there is one.

        A latency of which too many requests had no answer is a lower bound. Where a longer one would decide otherwise,
        the threshold is not checked.
        """
        values = self._values(result)
        open_ones = [(entity, value) for entity, value in values if self._is_open(entity, value)]
        failed = [(entity, value) for entity, value in values if not self.met_by(value)]
        failed = [each for each in failed if each not in open_ones]
        state = State.NOT_MET if failed or not values else State.UNCHECKED if open_ones else State.MET
        evidence = self._evidence(values, failed or open_ones)
        if state is State.UNCHECKED:
            evidence += "; too many requests had no answer by the end, and may take longer"
        return Judgement(aspect=Aspect.EXPECTATION, state=state, evidence=evidence)

    def _values(self, result: LoadResult) -> list[tuple[ClientResult, float]]:
        meant = _meant(self.entity, result)
        return [(entity, value) for entity in meant if (value := self.metric.of(entity)) is not None]

    def _is_open(self, entity: ClientResult, value: float) -> bool:
        """Return whether the value is a lower bound, and a higher one would be judged otherwise."""
        return self.metric.is_bound(entity) and self.met_by(value) is not self.met_by(math.inf)

    def _evidence(self, values: list[tuple[ClientResult, float]], failed: list[tuple[ClientResult, float]]) -> str:
        if not values:
            return f"{self.text}: no client of the run has that figure"
        shown = (failed or values)[:_MOST_SHOWN]
        figures = ", ".join(f"{entity.name.label} {self.metric.text(value, entity.unit)}" for entity, value in shown)
        more = len(failed or values) - len(shown)
        return f"{self.text}: {figures}" + (f", and {more} more" if more > 0 else "")


def parse_expectation(text: str) -> Expectation:
    """Parse a threshold.

    Raises:
        UsageError: The text is no threshold. The message has the part that was not understood.
    """
    match = _FORM.fullmatch(" ".join(text.split()))
    if match is None:
        raise UsageError(f"not an expectation: {text!r}", hint=_EXAMPLES)
    metric = METRICS.get(match["metric"])
    if metric is None:
        names = ", ".join(sorted({name.partition(".")[0] for name in METRICS}))
        raise UsageError(f"no such metric in {text!r}: {match['metric']}", hint=f"there are {names}; {_EXAMPLES}")
    if match["operator"]:
        low = high = _value(match["value"], metric, text)
    else:
        low, high = _value(match["low"], metric, text), _value(match["high"], metric, text)
        if low > high:
            raise UsageError(f"an empty range in {text!r}", hint=f"write the smaller bound first; {_EXAMPLES}")
    return Expectation(
        text=" ".join(text.split()),
        entity=match["entity"],
        metric=metric,
        comparison=match["operator"] or "in",
        low=low,
        high=high,
    )


def check_entities(expectations: Sequence[Expectation], labels: Sequence[str], *, has_control: bool) -> None:
    """Check before a run that every named client takes part.

    Raises:
        UsageError: A client does not take part.
    """
    for each in expectations:
        known = any(each.entity in (label, label.rpartition("/")[2]) for label in labels)
        if each.entity is not None and not known and not (has_control and each.entity == _CONTROL):
            raise UsageError(
                f"no client is named {each.entity} in {each.text!r}", hint=f"the run has {', '.join(labels[:5])}"
            )


def _meant(name: str | None, result: LoadResult) -> list[ClientResult]:
    if name is None:
        return list(result.entities)
    named = [each for each in result.entities if name in (each.name.label, each.name.client_id)]
    if named or name != _CONTROL:
        return named
    return [each for each in result.entities if each.control]


def _value(text: str, metric: Metric, whole: str) -> float:
    try:
        return metric.dimension.parse(text)
    except UsageError as error:
        raise UsageError(
            f"{text!r} in {whole!r} is not {metric.dimension.noun}", hint=metric.dimension.example
        ) from error
