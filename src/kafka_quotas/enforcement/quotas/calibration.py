"""The calibration of the cost model: measures the thread time of requests by the broker's own accounting.

A broker that has a `request_percentage` for a client throttles it once its thread time within the quota's window is
above that. So the number of requests until the first throttle time gives the time of one request as the broker accounts
for it, I/O and network threads together; the throttle time gives how far the last one exceeded the quota.

Every measurement has a client-id of its own with a small `request_percentage`, and sends requests until the broker
throttles it. It sends them over one connection at a time, and the broker serves its other clients meanwhile.
Invariants: the quotas are removed at the end, also after an error; it writes only to a scratch topic.

**Source:** `ClientRequestQuotaManager`, `QuotaUtils.throttleTime` (4.x): delay = (observed - bound) / bound * window;
`Rate.windowSize`.
"""

import math
import statistics
import uuid
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_charges import ApiCost, CostModel
from kafka_quotas.wire.client.probes import CostProbe, ProbeAnswer, Target, fetch_probe, produce_probe, small_probes

BUDGET_MS: Final = 20.0
"""Thread time of one measurement: some hundred requests. They have to end before the window forgets the first ones, so
a smaller budget allows for a slower network."""


def budget_percentage(window: QuotaWindow) -> float:
    """Return the `request_percentage` that allows `BUDGET_MS` of thread time within the complete windows."""
    return 100.0 * BUDGET_MS / float(max(window.samples - 1, 1) * window.window_ms)


def nanos_per_request(window: QuotaWindow, *, requests: int, elapsed_ms: float, throttle_ms: int) -> float:
    """Return the thread time (ns) of one of the requests until the first throttle time."""
    # A rate is also divided by the windows that it has not reached yet.
    short = window.samples - 1 - int(elapsed_ms // window.window_ms)
    spanned_ms = max(elapsed_ms + max(short, 0) * window.window_ms, 1.0)
    allowed_ms = budget_percentage(window) / 100.0 * spanned_ms
    return allowed_ms * (1.0 + throttle_ms / spanned_ms) / requests * 1e6


class MeasuredProbe(NamedTuple):
    """The measured cost of one size of request."""

    nanos: float
    request_bytes: int
    response_bytes: int
    name: str = ""


def fitted(measured: Sequence[MeasuredProbe]) -> ApiCost:
    """Return the cost of one API per request and per byte, by measurements from the smallest size on.

    The last one decides whether the bytes of the request or those of the response get the slope, which is at least 0.
    """
    small, large = measured[0], measured[-1]
    of_requests, of_responses = large.request_bytes - small.request_bytes, large.response_bytes - small.response_bytes
    by_request, more_bytes = of_requests > of_responses, max(of_requests, of_responses)
    slope = max(large.nanos - small.nanos, 0.0) / more_bytes if more_bytes > 0 else 0.0
    by_bytes = slope * (small.request_bytes if by_request else small.response_bytes)
    return ApiCost(
        request_nanos=max(small.nanos - by_bytes, 0.0),
        request_byte_nanos=slope if by_request else 0.0,
        response_byte_nanos=0.0 if by_request else slope,
    )


ROUNDS: Final = 5
"""Measurements per probe. The least counts, because other work of the machine only adds to it."""
WARM_UP_S: Final = 1.5
"""Time that each probe runs before the measurement: a broker's first requests take many times longer."""
LONGEST_S: Final = 5.0
SMALL_BYTES: Final = 1024
LARGE_BYTES: Final = 512 * 1024
BATCHES: Final = 64
BATCH_BYTES: Final = 16 * 1024

SendProbe: TypeAlias = Callable[[CostProbe], ProbeAnswer]


class Upstream(Protocol):
    """The broker under measurement."""

    def asking(self, client_id: str) -> SendProbe:
        """Return a function that sends probes with a client-id, over a connection of its own."""
        ...

    def limit(self, entities: Sequence[Entity]) -> None:
        """Give each of these entities the budget of thread time as its quota."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration of one broker by a monotonic clock."""

    upstream: Upstream
    _: KW_ONLY
    window: QuotaWindow
    batch: Callable[[int], bytes]
    now_s: Callable[[], float]
    on_progress: Callable[[MeasuredProbe], None]
    rounds: int = ROUNDS
    warm_up_s: float = WARM_UP_S
    name: str = field(default_factory=lambda: f"kafka-quotas-calibrate-{uuid.uuid4().hex[:8]}")

    def run(self, topic: str, *, source: str) -> CostModel:
        """Measure the broker by an empty topic whose partition 0 it leads, and return its cost model.

        Raises:
            KafkaQuotasError: The broker throttles no probe.
        """
        target = Target(topic=topic, end_offset=BATCHES, group=self.name)
        warm = self.upstream.asking(f"{self.name}-warm-up")
        for _ in range(BATCHES):
            warm(produce_probe(target, self.batch(BATCH_BYTES)))
        reading: list[CostProbe] = [
            fetch_probe(target, offset=target.end_offset, max_bytes=SMALL_BYTES),
            fetch_probe(target, offset=0, max_bytes=LARGE_BYTES),
            *small_probes(target),
        ]
        writing = [produce_probe(target, self.batch(size)) for size in (SMALL_BYTES, LARGE_BYTES)]
        # Each round of a probe has a client-id of its own.
        probes = [
            (probe, [f"{self.name}-{number}-{each}" for each in range(self.rounds)])
            for number, probe in enumerate((*reading, *writing), 1)
        ]
        self.upstream.limit([Entity.of(client_id=name) for _, names in probes for name in names])
        measured: dict[int, list[MeasuredProbe]] = {}
        # Writing comes last, because it changes the data that the other probes read.
        for part in (probes[: len(reading)], probes[len(reading) :]):
            for probe, _ in part:
                until_s = self.now_s() + self.warm_up_s
                while self.now_s() < until_s:
                    warm(probe)
            for probe, client_ids in part:
                cost = self._measured(probe, client_ids)
                if cost is not None:
                    measured.setdefault(probe.api_key, []).append(cost)
        if not measured:
            raise KafkaQuotasError(
                "the broker throttled no request",
                hint="does it enforce request_percentage, or has your user a quota that comes before client-ids?",
            )
        apis = {key: fitted(costs) for key, costs in measured.items()}
        unmeasured = ApiCost(request_nanos=statistics.median(cost.request_nanos for cost in apis.values()))
        return CostModel(source=source, other=unmeasured, apis=apis)

    def _measured(self, probe: CostProbe, client_ids: Sequence[str]) -> MeasuredProbe | None:
        """Return the least of the rounds, None if the broker answered too slowly to throttle any."""
        rounds: list[tuple[float, int]] = []
        for client_id in client_ids:
            rounds.append(self._round(probe, client_id))
            if math.isinf(rounds[-1][0]):
                break
        nanos, size = min(rounds)
        if math.isinf(nanos):
            return None
        measured = MeasuredProbe(nanos, len(probe.body), size, probe.name)
        self.on_progress(measured)
        return measured

    def _round(self, request: CostProbe, client_id: str) -> tuple[float, int]:
        """Return the time of one request (ns), by sending them until a throttle time, and a response's bytes."""
        ask = self.upstream.asking(client_id)
        begin_s, count, size = self.now_s(), 0, 0
        while True:
            answer = ask(request)
            count += 1
            size = size or answer.size
            elapsed_s = self.now_s() - begin_s
            if answer.throttle_ms > 0:
                nanos = nanos_per_request(
                    self.window, requests=count, elapsed_ms=1000 * elapsed_s, throttle_ms=answer.throttle_ms
                )
                return nanos, size
            if elapsed_s > LONGEST_S:
                return math.inf, size
