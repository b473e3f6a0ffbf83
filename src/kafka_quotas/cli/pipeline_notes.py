"""What jobs that are built of several jobs say on standard error meanwhile."""

import sys
from collections.abc import Callable

from kafka_quotas.cli.render import write
from kafka_quotas.pipeline.engine import EngineChoice


def engine_notes() -> Callable[[EngineChoice], None]:
    """What says which engine was chosen, and why: once, however many jobs choose the same."""
    said: set[EngineChoice] = set()

    def say(choice: EngineChoice) -> None:
        if choice not in said:
            said.add(choice)
            write(f"note: engine {choice.engine}: {choice.reason}", sys.stderr)

    return say
