"""Whether the load tester itself was what held a run back."""

from kafka_quotas.loadtest.result import EntityResult, LoadResult

_BUSY_PYTHON = 0.9  # of a second per second: Python runs one thread at a time
_BUSY_MACHINE = 0.9  # of all cores
_LATE_MS = 20.0  # a sleeping thread of an idle machine wakes within a fraction of that
_LATE_US = 100_000  # p99 from intended to sent, of a client that no quota held back


def warnings(result: LoadResult) -> tuple[str, ...]:
    """What makes the run's figures doubtful, in a sentence each: this process short of CPU, records sent late."""
    told = []
    cpu = result.cpu
    if cpu.python >= _BUSY_PYTHON:
        told.append(
            f"the load tester was the bottleneck: its Python threads took {cpu.python:.0%} of the one core they can "
            "use; rates and latencies may be its own. Offer less, or spread the load over several processes"
        )
    elif cpu.process >= _BUSY_MACHINE * cpu.cores:
        told.append(
            f"the load tester was the bottleneck: it took {cpu.process:.0%} of a core on a machine of {cpu.cores}; "
            "rates and latencies may be its own"
        )
    elif cpu.late_ms >= _LATE_MS:
        told.append(
            f"the machine was too busy for this run: threads waited {cpu.late_ms:.0f} ms for a core on average; rates "
            "and latencies may be its own"
        )
    late = [entity for entity in result.entities if _was_late(entity)]
    if late:
        worst = max(late, key=lambda entity: entity.schedule_delay.p99_us)
        told.append(
            f"{len(late)} unthrottled clients were sent late, {worst.name.label} by "
            f"{worst.schedule_delay.p99_us / 1e6:.2f} s (p99): the tool or the target could not keep the schedule"
        )
    dropped = sum(entity.dropped for entity in result.entities)
    if dropped:
        told.append(f"{dropped} arrivals were dropped by the load tester: too many were under way already")
    return tuple(told)


def _was_late(entity: EntityResult) -> bool:
    return entity.verdict.offered is not None and not entity.throttle.count and entity.schedule_delay.p99_us > _LATE_US
