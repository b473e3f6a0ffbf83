"""Measuring what requests cost a broker, by the broker's own accounts: see `cost_fit`.

Every measurement has a client-id of its own with a small `request_percentage`, and asks until it is throttled. The
broker answers everybody else meanwhile, and is asked by one connection at a time.
Invariants: the quotas are gone when it ends, however it ends; nothing but a scratch topic is written to.

What a request costs by how many of it a budget of thread time buys.

A broker that has a `request_percentage` for a client throttles it once its thread time within the quota's window is
more than that. So the number of requests until the first throttle time says what one of them takes, as the broker
itself accounts for it, I/O and network threads together; the throttle time says how far the last one went over.
**Source:** `ClientRequestQuotaManager`, `QuotaUtils.throttleTime` (4.x): delay = (observed - bound) / bound * window;
`Rate.windowSize`.
"""

import math
import statistics
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.cost_model import ApiCost, CostModel
from kafka_quotas.wire.client.probes import CostProbe, ProbeAnswer, Target, fetch_probe, produce_probe, small_probes

BUDGET_MS: Final = 20.0
"""Thread time that one measurement takes from the broker: some hundred requests. It has to be used up before it is
forgotten, so the less it is the slower a network may be."""


def budget_percentage(window: QuotaWindow) -> float:
    """The `request_percentage` that allows `BUDGET_MS` of thread time within the whole windows."""
    return 100.0 * BUDGET_MS / _whole_windows_ms(window)


def nanos_per_request(window: QuotaWindow, *, requests: int, elapsed_ms: float, throttle_ms: int) -> float:
    """What one of so many requests took of a thread, the last of which brought the first throttle time."""
    spanned_ms = _spanned_ms(window, elapsed_ms)
    allowed_ms = budget_percentage(window) / 100.0 * spanned_ms
    return allowed_ms * (1.0 + throttle_ms / spanned_ms) / requests * 1e6


def _spanned_ms(window: QuotaWindow, elapsed_ms: float) -> float:
    """The window in ms that a rate is divided by so long after its first record: whole windows short are added."""
    short = window.samples - 1 - int(elapsed_ms // window.window_ms)
    return max(elapsed_ms + max(short, 0) * window.window_ms, 1.0)


def _whole_windows_ms(window: QuotaWindow) -> float:
    return float(max(window.samples - 1, 1) * window.window_ms)


class Sized(NamedTuple):
    """A cost in ns of requests whose request and response have so many bytes."""

    nanos: float
    request_bytes: int
    response_bytes: int


def fitted(measured: Sequence[Sized]) -> ApiCost:
    """The cost per request and byte of one API, measured with small sizes first; no slope is below 0."""
    small, large = measured[0], measured[-1]
    request_slope = _slope(small, large, large.request_bytes - small.request_bytes)
    response_slope = _slope(small, large, large.response_bytes - small.response_bytes)
    if large.request_bytes - small.request_bytes > large.response_bytes - small.response_bytes:
        response_slope = 0.0
    else:
        request_slope = 0.0
    by_bytes = request_slope * small.request_bytes + response_slope * small.response_bytes
    return ApiCost(
        request_nanos=max(small.nanos - by_bytes, 0.0),
        request_byte_nanos=request_slope,
        response_byte_nanos=response_slope,
    )


def _slope(small: Sized, large: Sized, more_bytes: int) -> float:
    return max(large.nanos - small.nanos, 0.0) / more_bytes if more_bytes > 0 else 0.0


def typical(costs: Iterable[ApiCost]) -> ApiCost:
    """What an API costs that was not measured: the middle of those that were."""
    return ApiCost(request_nanos=statistics.median(cost.request_nanos for cost in costs))


ROUNDS: Final = 5
"""How often each probe is measured; the least counts, for other work of the machine only ever adds to it."""
WARM_UP_S: Final = 1.5
"""How long each probe runs before anything is measured: a broker's first requests take many times longer."""
LONGEST_S: Final = 5.0
"""How long one measurement may go on without a throttle time."""
SMALL_BYTES: Final = 1024
LARGE_BYTES: Final = 512 * 1024
BATCHES: Final = 64
BATCH_BYTES: Final = 16 * 1024

SendProbe: TypeAlias = Callable[[CostProbe], ProbeAnswer]


class Upstream(Protocol):
    """The broker that is measured."""

    def asking(self, client_id: str) -> SendProbe:
        """What sends probes under a client-id, over a connection of its own."""
        ...

    def limit(self, entities: Sequence[Entity]) -> None:
        """Nothing; each of these entities may take the budget of thread time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One probe that was measured: its name, request and response size in bytes, and the time in ns that it takes."""

    name: str
    request_bytes: int
    response_bytes: int
    nanos: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """A probe and the client-ids of its rounds."""

    request: CostProbe
    client_ids: tuple[str, ...]


class Calibration:
    """Measures one broker; `now_s` is a clock that only goes forward."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        window: QuotaWindow,
        batch: Callable[[int], bytes],
        now_s: Callable[[], float],
        on_progress: Callable[[Progress], None],
        rounds: int = ROUNDS,
        warm_up_s: float = WARM_UP_S,
    ) -> None:
        self._rounds = rounds
        self._warm_up_s = warm_up_s
        self._upstream = upstream
        self._window = window
        self._batch = batch
        self._now_s = now_s
        self._on_progress = on_progress
        self._probes = 0
        self._token = uuid.uuid4().hex[:8]

    def run(self, topic: str, *, source: str) -> CostModel:
        """The cost model of the broker, by means of a topic that holds nothing yet and whose partition 0 it leads.

        Raises `KafkaQuotasError` where the broker never throttles.
        """
        target = Target(topic=topic, end_offset=BATCHES, group=self._name)
        warm = self._upstream.asking(f"{self._name}-warm-up")
        for _ in range(BATCHES):
            warm(produce_probe(target, self._batch(BATCH_BYTES)))
        reading, writing = (list(map(self._probe, requests)) for requests in self._requests(target))
        limited = [name for probe in (*reading, *writing) for name in probe.client_ids]
        self._upstream.limit([Entity.of(client_id=name) for name in limited])
        measured: dict[int, list[Sized]] = {}
        for probes in (reading, writing):  # what is read stays as it is until it was read
            for probe in probes:
                self._warm_up(warm, probe.request)
            for probe in probes:
                cost = self._measured(probe)
                if cost is not None:
                    measured.setdefault(probe.request.api_key, []).append(cost)
        if not measured:
            raise KafkaQuotasError(
                "the broker throttled no request",
                hint="does it enforce request_percentage, or has your user a quota that comes before client-ids?",
            )
        apis = {key: fitted(costs) for key, costs in measured.items()}
        return CostModel(source=source, other=typical(apis.values()), apis=apis)

    @property
    def _name(self) -> str:
        return f"kafka-quotas-calibrate-{self._token}"

    def _requests(self, target: Target) -> tuple[Sequence[CostProbe], Sequence[CostProbe]]:
        """The probes that read and those that write; those of one API go from small to large."""
        reading = (
            fetch_probe(target, offset=target.end_offset, max_bytes=SMALL_BYTES),
            fetch_probe(target, offset=0, max_bytes=LARGE_BYTES),
            *small_probes(target),
        )
        return reading, tuple(produce_probe(target, self._batch(size)) for size in (SMALL_BYTES, LARGE_BYTES))

    def _probe(self, request: CostProbe) -> _Probe:
        self._probes += 1
        names = tuple(f"{self._name}-{self._probes}-{each}" for each in range(self._rounds))
        return _Probe(request=request, client_ids=names)

    def _warm_up(self, ask: SendProbe, request: CostProbe) -> None:
        until_s = self._now_s() + self._warm_up_s
        while self._now_s() < until_s:
            ask(request)

    def _measured(self, probe: _Probe) -> Sized | None:
        """The least of the rounds, None where the broker did not throttle any: its answers came too slowly."""
        rounds: list[tuple[float, int]] = []
        for client_id in probe.client_ids:
            rounds.append(self._round(probe.request, client_id))
            if math.isinf(rounds[-1][0]):
                break
        nanos, size = min(rounds)
        if math.isinf(nanos):
            return None
        sized = Sized(nanos, len(probe.request.body), size)
        self._on_progress(
            Progress(
                name=probe.request.name,
                request_bytes=sized.request_bytes,
                response_bytes=sized.response_bytes,
                nanos=nanos,
            )
        )
        return sized

    def _round(self, request: CostProbe, client_id: str) -> tuple[float, int]:
        """What one request took (ns, infinity: unknown), and how large its response is while it is not throttled."""
        ask = self._upstream.asking(client_id)
        begin_s, count, size = self._now_s(), 0, 0
        while True:
            answer = ask(request)
            count += 1
            size = size or answer.size
            elapsed_s = self._now_s() - begin_s
            if answer.throttle_ms > 0:
                nanos = nanos_per_request(
                    self._window, requests=count, elapsed_ms=1000 * elapsed_s, throttle_ms=answer.throttle_ms
                )
                return nanos, size
            if elapsed_s > LONGEST_S:
                return math.inf, size
