"""The accounting of one client: the outcome of each arrival that was due."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The outcome of the records, requests, topics or connections of one client, in the whole run.

    A client without a schedule, or in a closed loop, has nothing due but what it sent.
    """

    due: int
    """Those that were due by the end of the client's part of the run, counted by its schedule."""
    acknowledged: int
    failed: int
    unsent: int
    """Those that were due and never sent, dropped ones included."""
    unanswered: int
    """Those that were sent and had no answer at the end."""
    doubtful: int = 0
    """Of the acknowledged, those that may have been refused: librdkafka reports what it watches alone."""
    settled: int = 0
    """Those of a schedule that were due so long before the end that they should have an answer."""

    @property
    def unaccounted(self) -> int:
        """The difference between what was due and the sum of the rest, 0 where the load tester counts right."""
        return self.due - (self.acknowledged + self.failed + self.unsent + self.unanswered)

    @property
    def evidence(self) -> str:
        """The equation, in one line."""
        equation = (
            f"{self.due:,} due = {self.acknowledged:,} acknowledged + {self.failed:,} failed + {self.unsent:,} unsent"
            f" + {self.unanswered:,} unanswered"
        )
        if not self.doubtful:
            return equation
        doubt = f"up to {self.doubtful} of the acknowledged may have been refused before refusals were watched"
        return f"{equation}; {doubt}"
