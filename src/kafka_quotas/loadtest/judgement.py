"""What a run is judged by, one line of evidence each; all of them together decide the exit code."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Aspect(StrEnum):
    """What was asked of the run or of one of its clients."""

    RUN = "run"
    """Whether the run can prove anything: whole, and under the same quotas from beginning to end."""
    RATE = "rate"
    """Achieved against quota or offer."""
    THROTTLE = "throttle time"
    """The sum of throttle times against what the simulator makes of the same events."""
    ISOLATION = "isolation"
    """A control client's latency against its solo run."""
    DELIVERY = "delivery"
    """No record lost, none twice."""
    EXPECTATION = "expectation"
    """A threshold of the user's own."""


class State(StrEnum):
    """How one judgement, or all of them together, turned out."""

    MET = "met"
    NOT_MET = "not met"
    VOID = "void"
    """The run proves nothing about it: ended early, too short, or under quotas that changed."""
    UNCHECKED = "not checked"
    """It could not be looked at; the evidence says why. Does not count against the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One judgement, on one client or (`entity` None) on the run."""

    aspect: Aspect
    state: State
    evidence: str
    entity: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it leaves the exit code at 0."""
        return self.state in (State.MET, State.UNCHECKED)


def overall(judgements: Iterable[Judgement]) -> State:
    """The state of a run: void if one judgement is, else not met if one is not."""
    states = {judgement.state for judgement in judgements}
    return State.VOID if State.VOID in states else State.NOT_MET if State.NOT_MET in states else State.MET
