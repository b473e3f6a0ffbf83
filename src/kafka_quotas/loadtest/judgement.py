"""Judgements on a run, each with one line of evidence, which together decide the exit code."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Aspect(StrEnum):
    """The requirement that a judgement is about."""

    RUN = "run"
    """Whether the run proves anything, being complete and under the same quotas from beginning to end."""
    RATE = "rate"
    """The achieved rate against quota or offer."""
    THROTTLE = "throttle time"
    """The sum of throttle times against what the simulator computes from the same events."""
    ISOLATION = "isolation"
    """A control client's latency beside the others against its solo run, and against the same load without quotas."""
    CONTROL = "control run"
    """The same load without the quotas, for which the judgements must fail."""
    BOOKS = "books"
    """Every arrival that was due is accounted for, and those of clients that no quota holds back were served."""
    DELIVERY = "delivery"
    EXPECTATION = "expectation"

    @property
    def label(self) -> str:
        """The words for people."""
        return "accounting" if self is Aspect.BOOKS else self.value


class State(StrEnum):
    """The state of one judgement, or of all of them together."""

    MET = "met"
    NOT_MET = "not met"
    VOID = "void"
    """The run ended early, was too short, or had quotas that changed, and proves nothing."""
    UNDECIDED = "undecided"
    """Tried, but the figures scatter too much to decide, which is no success."""
    UNCHECKED = "not checked"
    """Not checked for the reason in the evidence, which does not count against the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One judgement, on a client or on the run."""

    aspect: Aspect
    entity: str | None = None
    """The label of the client, None for the run."""
    state: State
    evidence: str

    @property
    def ok(self) -> bool:
        """Whether it leaves the exit code at 0."""
        return self.state in (State.MET, State.UNCHECKED)


def overall(judgements: Iterable[Judgement]) -> State:
    """Return the worst state of a run's judgements: void, not met, undecided, else met."""
    states = {judgement.state for judgement in judgements}
    return next((state for state in (State.VOID, State.NOT_MET, State.UNDECIDED) if state in states), State.MET)
