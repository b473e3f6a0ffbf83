"""What one decision of the core costs, in time and in memory.

    python benchmarks/core.py [--decisions N] [--entities N] [--compiled]

Time: nanoseconds per record-check-throttle (11 x 1 s) and per token-bucket decision, asked of a bucket (the algorithm
alone) and of a handle (what the daemon keeps per connection); for one hot entity and for many.
The clock of the hot entity moves 1 ms per decision. Each of the many entities is asked every 100 ms, so that every
tenth decision starts a new sample. It is processor time of this thread, the loop itself taken off; the best of several
rounds for the hot entity, the mean for the many.

Memory: bytes per bucket with its full ring of samples, its name and its place in the manager, as tracemalloc counts
them (the texts of user and client-id belong to the caller). Expiry: the cost of one look for idle buckets, and of
forgetting them all.

Fetches: one that passes the queue of its client's bucket, from its request to the charge of its response.

Groups: a decision of a client within three levels of them, each with a limit and the inner two with a guaranteed rate
as well, against one in none; how long 1,000 patterns take to load, and the group of a new client to be found.

`--compiled` compiles the modules of the hot path with mypyc into a temporary folder and runs the same figures on them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

from kafka_quotas.core.groups.group import Group, GroupMember, GroupTree
from kafka_quotas.core.groups.membership import Membership
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.quotas.fetch_queue import FetchTurn
from kafka_quotas.core.quotas.limiter import Limiter
from kafka_quotas.core.quotas.quota_bucket import MutationBucket, RateBucket
from kafka_quotas.core.quotas.quota_manager import IDLE_MS, ClientQuotaManager, QuotaType, RateAlgorithm
from kafka_quotas.core.resolution.quota_resolver import GROUP_MARKS, GROUP_USER, QuotaResolver

START_MS = 1_700_000_000_000
LAST_MS = START_MS + 17_000  # the ring of twelve samples is full, and half way round again
ROUNDS = 10
MEMORY_ENTITIES = 20_000  # tracing is slow, and more entities do not change what one takes
AIM_NS = {QuotaType.PRODUCE: 700, QuotaType.FETCH: 8000, QuotaType.REQUEST: 700, QuotaType.CONTROLLER_MUTATION: 200}
AIM_BYTES = 1024
PATTERNS = 1000
WORK = {
    QuotaType.PRODUCE: ("bytes, within the quota", 1000.0, 1e12),
    QuotaType.REQUEST: ("thread time (fractions), within the quota", 0.0123, 1e12),
    QuotaType.CONTROLLER_MUTATION: ("token bucket, within the quota", 1.0, 1e9),
}
COMPILED = (
    *(f"core/metrics/{name}.py" for name in ("rate", "sensor", "throttle_time", "throttled_minute")),
    *(f"core/quotas/{name}.py" for name in ("bucket_pool", "fetch_queue", "limiter", "quota_bucket", "quota_manager")),
)

Decide = Callable[[float, int], int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=100_000, help="per round")
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--compiled", action="store_true", help="compile the hot path with mypyc first")
    options = parser.parse_args()
    if options.compiled:
        sys.exit(run_compiled(sys.argv[1:]))
    compiled = (
        "" if str(sys.modules[RateBucket.__module__].__file__).endswith(".py") else ", hot path compiled by mypyc"
    )
    print(f"Python {sys.version.split()[0]}{compiled}; {ROUNDS} rounds of {options.decisions} decisions\n")
    time_hot(options.decisions)
    time_many(options.decisions, options.entities)
    time_fetches(options.decisions)
    measure_memory(min(options.entities, MEMORY_ENTITIES))
    time_groups(options.decisions)


def time_hot(decisions: int) -> None:
    """Print the cost of a decision on one entity."""
    print("one hot entity, ns per decision")
    times_ms = [START_MS + index for index in range(decisions)]
    for quota_type, (work, value, bound) in WORK.items():
        report(quota_type, work, hot_ns(quota_type, value, bound, times_ms))
    over = hot_ns(QuotaType.PRODUCE, 1000.0, 1e3, times_ms)
    report(QuotaType.PRODUCE, "bytes, over the quota, throttle time computed", over)


def hot_ns(quota_type: QuotaType, value: float, bound: float, times_ms: Sequence[int]) -> dict[str, float]:
    """Nanoseconds per decision by way of asking."""
    found = {}
    for way in ("bucket", "handle"):
        manager = manager_of(quota_type, bound)
        decide = way_of_asking(manager, way)
        rounds = [times_ms, *([at_ms + len(times_ms) * turn for at_ms in times_ms] for turn in range(1, ROUNDS))]
        found[way] = min(per_decision_ns(decide, value, turn) for turn in rounds)
    return found


def manager_of(quota_type: QuotaType, bound: float) -> ClientQuotaManager:
    """Return a manager whose default quota gives every pair of user and client-id a bucket of its own."""
    manager = ClientQuotaManager(quota_type)
    manager.limits.update(Entity.of(user=None, client_id=None), bound)
    return manager


def way_of_asking(manager: ClientQuotaManager, way: str) -> Decide:
    """Return the call that decides on one entity."""
    if way == "handle":
        return manager.limiter("user", "client").record
    bucket, _ = manager.resolve("user", "client")
    assert isinstance(bucket, RateBucket | MutationBucket)
    return bucket.record_and_throttle_ms


def per_decision_ns(decide: Decide, value: float, times_ms: Sequence[int]) -> float:
    """Nanoseconds per call, the loop taken off."""
    began = time.thread_time_ns()
    for _ in times_ms:
        pass
    loop_ns = time.thread_time_ns() - began
    began = time.thread_time_ns()
    for now_ms in times_ms:
        decide(value, now_ms)
    return (time.thread_time_ns() - began - loop_ns) / len(times_ms)


def time_many(decisions: int, entities: int) -> None:
    """Print the cost of a decision spread over many entities in turn."""
    print(f"\n{entities} entities in turn, ns per decision")
    for quota_type, (work, value, bound) in WORK.items():
        report(quota_type, work, {"handle": many_ns(quota_type, value, bound, decisions, entities)})


def many_ns(quota_type: QuotaType, value: float, bound: float, decisions: int, entities: int) -> float:
    """Nanoseconds per decision by handle, every ring of samples full."""
    manager = manager_of(quota_type, bound)
    records = [manager.limiter(f"user-{index}", f"client-{index}").record for index in range(entities)]
    for now_ms in range(START_MS, LAST_MS + 1, 1000):
        for record in records:
            record(value, now_ms)
    began_ms, per_ms, found = LAST_MS + 1000, max(1, entities // 100), []
    for turn in range(ROUNDS):
        indices = range(turn * decisions, (turn + 1) * decisions)
        calls = [(records[index % entities], began_ms + index // per_ms) for index in indices]
        began = time.thread_time_ns()
        for _record, _now_ms in calls:
            pass
        loop_ns = time.thread_time_ns() - began
        began = time.thread_time_ns()
        for record, now_ms in calls:
            record(value, now_ms)
        found.append((time.thread_time_ns() - began - loop_ns) / decisions)
    return sum(found) / len(found)  # not the best: rounds differ in how many samples they start


def time_fetches(decisions: int) -> None:
    """Print the cost of a Fetch that passes the queue of its bucket."""
    limiter, turn = manager_of(QuotaType.FETCH, 1e12).limiter("user", "client"), FetchTurn()

    def fetch(value: float, now_ms: int) -> int:
        queue = limiter.fetch_queue(now_ms)
        queue.enter(turn, 50.0 * 1024 * 1024, now_ms)
        return queue.answered(turn, value, now_ms) or limiter.record(value, now_ms)

    times_ms = [[START_MS + part * decisions + index for index in range(decisions)] for part in range(ROUNDS)]
    print("\na Fetch through its queue, ns")
    report(
        QuotaType.FETCH,
        "bytes, within the quota",
        {"handle": min(per_decision_ns(fetch, 1000.0, each) for each in times_ms)},
    )


def measure_memory(entities: int) -> None:
    """Print bytes per bucket, and what looking for idle buckets costs."""
    print(f"\nmemory over {entities} entities, bytes each (aim at most {AIM_BYTES} per bucket), and expiry")
    for quota_type, (_, value, bound) in WORK.items():
        manager = manager_of(quota_type, bound)
        per_bucket = bytes_each(manager, entities, value)
        looked_ms, kept = timed_ms(manager.expire_idle, LAST_MS + IDLE_MS)
        forgot_ms, forgotten = timed_ms(manager.expire_idle, LAST_MS + IDLE_MS + 1)
        assert (kept, forgotten) == (0, entities)
        print(
            f"  {quota_type.value:20} {per_bucket:5.0f} per bucket;"
            f"  a look {looked_ms:.0f} ms, forgetting all {forgot_ms:.0f} ms"
        )


def bytes_each(manager: ClientQuotaManager, entities: int, value: float) -> float:
    """Bytes per bucket, once every ring of samples is full."""
    names = [(f"user-{index}", f"client-{index}") for index in range(entities)]
    tracemalloc.start()
    try:
        for now_ms in range(START_MS, LAST_MS + 1, 1000):
            for user, client_id in names:
                manager.record_without_throttle(user, client_id, value, now_ms)
        return tracemalloc.get_traced_memory()[0] / entities
    finally:
        tracemalloc.stop()


def time_groups(decisions: int) -> None:
    """Print the cost of a decision in groups, and of finding the group of a client."""
    print("\na client in groups, ns per decision")
    limits = QuotaResolver()
    clients = ClientQuotaManager(QuotaType.PRODUCE, limits=limits)
    groups = ClientQuotaManager(QuotaType.PRODUCE, algorithm=RateAlgorithm.SMOOTH, limits=limits)
    clients.limits.update(Entity.of(user=None, client_id=None), 1e12)
    levels = ("team", "team/app", "team/app/part")
    for mark in GROUP_MARKS:
        for level in levels:
            limits.update_group((mark, level), 1e12)
    pairs = [(mark, level) for level in levels for mark in reversed(GROUP_MARKS)]
    ways = {
        "in no group": clients.limiter("user", "client"),
        "three limits": Limiter(clients, "user", "client", [(GROUP_USER, level) for level in levels], groups),
        "three limits, two guaranteed rates": Limiter(clients, "user", "client", pairs[1:], groups),
    }
    began_ms = START_MS
    for work, limiter in ways.items():  # of the same buckets, whose clock does not go back
        times_ms = [[began_ms + turn * decisions + index for index in range(decisions)] for turn in range(ROUNDS)]
        found = min(per_decision_ns(limiter.record, 1000.0, turn) for turn in times_ms)
        began_ms += ROUNDS * decisions
        print(f"  {work:46} handle {found:5.0f}")
    members = tuple(GroupMember(client_id_pattern=f"*app{number}-*") for number in range(PATTERNS))
    began = time.thread_time_ns()
    membership = Membership(GroupTree([Group(name="team", members=members)]))
    membership.group_of("user", "client")
    print(f"  {PATTERNS} patterns are loaded in {(time.thread_time_ns() - began) / 1e6:.0f} ms")
    names = [f"client-{number}" for number in range(1000)]
    began = time.thread_time_ns()
    for name in names:
        membership.group_of("user", name)
    print(f"  a client that fits none of them is known in {(time.thread_time_ns() - began) / 1e3 / len(names):.0f} us")


def timed_ms(call: Callable[[int], int], now_ms: int) -> tuple[float, int]:
    """How long a call took, and its result."""
    began = time.thread_time_ns()
    result = call(now_ms)
    return (time.thread_time_ns() - began) / 1e6, result


def report(quota_type: QuotaType, work: str, found_ns: dict[str, float]) -> None:
    ways = "  ".join(f"{way} {ns:5.0f}" for way, ns in found_ns.items())
    print(f"  {work:46} {ways}   (aim {AIM_NS[quota_type]})")


def run_compiled(arguments: Sequence[str]) -> int:
    """Return the exit code of this benchmark on a copy of the package whose hot path is compiled."""
    source = Path(__file__).parent.parent / "src"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cp", "-r", source / "kafka_quotas", folder], check=True)
        modules = [f"kafka_quotas/{name}" for name in COMPILED]
        options = ("--config-file=", "--ignore-missing-imports", "--follow-imports=silent")
        subprocess.run(
            [sys.executable, "-m", "mypyc", *options, *modules], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        rest = [argument for argument in arguments if argument != "--compiled"]
        environment = {**os.environ, "PYTHONPATH": folder}
        return subprocess.run([sys.executable, __file__, *rest], env=environment, check=False).returncode


if __name__ == "__main__":
    main()
