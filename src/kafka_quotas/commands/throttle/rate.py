"""What byte-rate and request quotas allow, and how long they delay a client: every figure with its arithmetic.

Invariants: values are plain numbers in the unit named beside them, and the arithmetic, which is for people, may be
rounded. The shipped figures come from replaying the traffic through the same `Rate` that enforcement uses. n % is n %
of one thread, and the delay of a request quota is at most one sample of the quota window.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from kafka_quotas.core.described import Described, Sentences
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.metrics.throttle_time import throttle_time_ms
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.value_format import BYTES, BYTES_PER_SECOND, MS, PERCENT, format_amount


@dataclass(frozen=True, slots=True)
class Step:
    """One figure of a calculation, with its arithmetic, by position like the row of a table."""

    DOCUMENT: ClassVar = "figure=name arithmetic value=rounded unit"
    name: str
    arithmetic: str
    value: float
    unit: str
    """Unit of the value."""

    @property
    def rounded(self) -> float:
        """The value without the noise of a sum of doubles."""
        return without_noise(self.value)


def without_noise(value: float) -> float:
    """Round the value to twelve digits.

    Beyond the thirteenth digit a sum of doubles holds rounding errors only.
    """
    return float(f"{value:.12g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation:
    """One way to calculate, with its steps."""

    DOCUMENT: ClassVar = "method title source delay_ms steps"
    method: str
    """Short name for machines."""
    title: str
    """Name for people."""
    source: str
    """Source of the rule."""
    steps: tuple[Step, ...]
    delay_ms: Annotated[int | None, Described(text="null for a method that yields no delay")] = None


@dataclass(frozen=True, slots=True)
class Given:
    """A figure that an answer starts from."""

    DOCUMENT: ClassVar = "name value unit"
    name: str
    value: float
    unit: str
    origin: str = ""
    """Source of the figure, empty where it was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalculatorAnswer:
    """The answer of a calculator command: given figures, calculations, and notes on them."""

    given: tuple[Given, ...]
    calculations: tuple[Calculation, ...]
    notes: Sentences = ()


REQUESTS_PER_SAMPLE: Final = 10
"""Equal requests per sample of steady traffic."""

MOST_SAMPLES: Final = 100_000
"""Most samples of a window: a longer history would take longer than a person waits."""


class Moment(StrEnum):
    """The place of the last request within a sample."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The state after the last request."""

    rate: float
    """Rate per second."""
    window_ms: int
    """Window that the rate was measured over, in ms."""
    throttle_ms: int
    """Unbounded delay in ms."""


def after_steady_traffic(*, bound: float, window: QuotaWindow, steady: float, amount: float, moment: Moment) -> Found:
    """Measure Kafka's `Rate` after a full window of `steady` traffic per second and a request of `amount`.

    `moment` is START for a request that begins a new sample, END for the last, and only, one of its sample.

    Raises:
        UsageError: The window has more than `MOST_SAMPLES` samples.
    """
    if window.samples > MOST_SAMPLES:
        raise UsageError(
            f"the calculator takes at most {MOST_SAMPLES} samples, not {window.samples}",
            hint="fewer and longer samples measure the same time",
        )
    rate = Rate(window.samples, window.window_ms)
    between_ms = window.window_ms // REQUESTS_PER_SAMPLE
    start_ms = (window.samples + 1) * window.window_ms
    if steady:
        for now_ms in range(0, start_ms, between_ms):
            rate.record(steady * between_ms / 1000, now_ms)
    now_ms = start_ms if moment is Moment.START else start_ms + window.window_ms - between_ms
    rate.record(amount, now_ms)
    measured = rate.measure(now_ms)
    window_ms = rate.window_ms(now_ms)
    return Found(rate=measured, window_ms=window_ms, throttle_ms=max(0, throttle_time_ms(measured, bound, window_ms)))


KIP_13 = "KIP-13, delay time in QuotaViolationException"
KIP_13_SAMPLES = 10
SHIPPED = "Kafka 4.x: Rate, SampledStat, QuotaUtils.throttleTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTraffic:
    """A quota and a client's traffic: either an `observed` rate, or a `burst` after a `steady` rate."""

    quota: float
    """Quota in bytes/s."""
    observed: float | None = None
    """Observed rate in bytes/s."""
    over_ms: int | None = None
    """Time of the observed rate in ms, None for the quota window."""
    steady: float = 0.0
    """Rate before the burst in bytes/s."""
    burst: float | None = None
    """Bytes of the burst, within one sample."""


def throttle_rate(traffic: RateTraffic, window: QuotaWindow) -> CalculatorAnswer:
    """Calculate the delay of a byte-rate quota, by KIP-13 and as shipped where they may differ.

    Raises:
        UsageError: Neither or both of an observed rate and a burst are given, or a figure is out of range.
    """
    if (traffic.observed is None) == (traffic.burst is None):
        raise UsageError("give either --observed or --burst", hint="--observed 6MB/s, or --steady 5MB/s --burst 15MB")
    if traffic.observed is not None:
        return _observed(traffic, traffic.observed, window)
    if traffic.over_ms is not None:
        raise UsageError("--over goes with --observed", hint="a burst falls into one sample of the quota window")
    assert traffic.burst is not None
    return _burst(traffic, traffic.burst, window)


def _observed(traffic: RateTraffic, observed: float, window: QuotaWindow) -> CalculatorAnswer:
    """Calculate over the given window, or without one over the shortest and the usual longest one."""
    given = (Given("quota", traffic.quota, BYTES_PER_SECOND), Given("observed", observed, BYTES_PER_SECOND))
    if traffic.over_ms is not None:
        windows = [("given", "over the given window", traffic.over_ms)]
    else:
        windows = [
            ("shortest", "over Kafka's shortest window", _whole_samples(window) * window.window_ms),
            ("longest", "over its longest window", _longest_ms(window)),
        ]
    return CalculatorAnswer(
        given=given,
        calculations=tuple(
            Calculation(
                method=f"{method}-window",
                title=f"observed {place}",
                source="KIP-13, KIP-124: X = (O - T) / T * W",
                steps=_rate_steps(observed, traffic.quota, window_ms),
                delay_ms=max(0, throttle_time_ms(observed, traffic.quota, window_ms)),
            )
            for method, place, window_ms in windows
        ),
        notes=() if traffic.over_ms is not None else (_kept(window),),
    )


def _burst(traffic: RateTraffic, burst: float, window: QuotaWindow) -> CalculatorAnswer:
    shipped = tuple(_shipped(traffic, burst, window, moment) for moment in Moment)
    return CalculatorAnswer(
        given=(
            Given("quota", traffic.quota, BYTES_PER_SECOND),
            Given("steady", traffic.steady, BYTES_PER_SECOND),
            Given("burst", burst, BYTES),
        ),
        calculations=(_kip_13(traffic, burst, window), *shipped),
        notes=(
            f"KIP-13 counts {_kip_13_samples(window)} samples, the burst's own as the last",
            "the delay Kafka gives depends on where in one of its samples the burst falls",
            _kept(window),
        ),
    )


def _kip_13(traffic: RateTraffic, burst: float, window: QuotaWindow) -> Calculation:
    """Calculate by KIP-13: all but the last sample have the steady rate, the last one the burst."""
    samples = _kip_13_samples(window)
    window_ms = samples * window.window_ms
    before = (samples - 1) * traffic.steady * window.window_s
    produced, allowed = before + burst, traffic.quota * window_ms / 1000
    written = (
        f"{samples - 1} x {format_amount(traffic.steady * window.window_s, BYTES)} + {format_amount(burst, BYTES)}"
    )
    delay_ms = max(0, throttle_time_ms(produced / (window_ms / 1000), traffic.quota, window_ms))
    quota = format_amount(traffic.quota, BYTES_PER_SECOND)
    difference = f"({format_amount(produced, BYTES)} - {format_amount(allowed, BYTES)}) / {quota}"
    return Calculation(
        method="kip-13",
        title="KIP-13",
        source=KIP_13,
        steps=(
            Step("window", f"{samples} x {format_amount(window.window_ms, MS)}", window_ms, MS),
            Step("produced", written, produced, BYTES),
            _allowed(traffic.quota, window_ms),
            Step(
                "rate",
                f"{format_amount(produced, BYTES)} / {format_amount(window_ms, MS)}",
                produced / (window_ms / 1000),
                BYTES_PER_SECOND,
            ),
            Step("delay", difference, delay_ms, MS),
        ),
        delay_ms=delay_ms,
    )


def _kip_13_samples(window: QuotaWindow) -> int:
    """Return how many samples KIP-13 would count: its N of 10 shipped as 11, the current one included."""
    return KIP_13_SAMPLES if window.samples == DEFAULT_WINDOW.samples else window.samples


def _shipped(traffic: RateTraffic, burst: float, window: QuotaWindow, moment: Moment) -> Calculation:
    """Calculate by the shipped `Rate`, for small requests with the burst as one of them."""
    found = after_steady_traffic(bound=traffic.quota, window=window, steady=traffic.steady, amount=burst, moment=moment)
    return Calculation(
        method=f"kafka-{moment}",
        title=f"Kafka, {moment} of a sample",
        source=SHIPPED,
        steps=_rate_steps(found.rate, traffic.quota, found.window_ms, produced_known=True),
        delay_ms=found.throttle_ms,
    )


def _rate_steps(rate: float, quota: float, window_ms: int, *, produced_known: bool = False) -> tuple[Step, ...]:
    """Return the steps from a rate over a window to the delay: X = (O - T) / T * W."""
    delay_ms = max(0, throttle_time_ms(rate, quota, window_ms))
    rate_text, quota_text, window_text = (
        format_amount(rate, BYTES_PER_SECOND),
        format_amount(quota, BYTES_PER_SECOND),
        format_amount(window_ms, MS),
    )
    produced = rate * window_ms / 1000
    window_rule = "since the oldest sample kept began" if produced_known else "as given by the quota window"
    return (
        Step("window", window_rule, window_ms, MS),
        Step(
            "produced", "sum of the samples kept" if produced_known else f"{rate_text} x {window_text}", produced, BYTES
        ),
        _allowed(quota, window_ms),
        Step(
            "rate",
            f"{format_amount(produced, BYTES)} / {window_text}" if produced_known else "observed",
            rate,
            BYTES_PER_SECOND,
        ),
        Step(
            "delay",
            f"({rate_text} - {quota_text}) / {quota_text} x {window_text}"
            if rate > quota
            else f"{rate_text} is not above {quota_text}",
            delay_ms,
            MS,
        ),
    )


def _allowed(quota: float, window_ms: int) -> Step:
    return Step(
        "bound",
        f"{format_amount(quota, BYTES_PER_SECOND)} x {format_amount(window_ms, MS)}",
        quota * window_ms / 1000,
        BYTES,
    )


def _whole_samples(window: QuotaWindow) -> int:
    return max(window.samples - 1, 1)


def _longest_ms(window: QuotaWindow) -> int:
    """Return the time in ms that Kafka's window never reaches.

    Kafka keeps a sample by the time since its last record, not since its start.
    """
    return (window.samples + 1) * window.window_ms


def _kept(window: QuotaWindow) -> str:
    shortest = format_amount(_whole_samples(window) * window.window_ms, MS)
    return (
        "Kafka divides by the time since the oldest sample kept began: "
        f"at least {shortest}, under steady traffic up to {format_amount(_longest_ms(window), MS)}"
    )


KIP_124 = "KIP-124, request quotas"
SHIPPED_FOR_REQUESTS = "Kafka 4.x: ClientRequestQuotaManager, QuotaUtils.boundedThrottleTime"
THREADS = "threads"
DEFAULT_IO_THREADS = 8
DEFAULT_NETWORK_THREADS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLoad:
    """A request quota, the broker's threads, and a client's load.

    `connections` and `request_ms` together give the most that a client can use.
    """

    quota: float
    """Quota in % of one thread."""
    io_threads: int = DEFAULT_IO_THREADS
    network_threads: int = DEFAULT_NETWORK_THREADS
    steady: float | None = None
    """Usage before a stall in %, None for the quota."""
    stall_ms: float | None = None
    """Thread time of one long request in ms."""
    connections: int | None = None
    request_ms: float | None = None
    """Thread time of one request in ms."""


def throttle_request(load: RequestLoad, window: QuotaWindow) -> CalculatorAnswer:
    """Calculate the quota's worth, the most a client can use, and the delay of a stall."""
    given = [Given("quota", load.quota, PERCENT)]
    calculations = [_worth(load, window)]
    if load.connections is not None and load.request_ms is not None:
        calculations.append(_ceiling(load, load.connections, load.request_ms, window))
    if load.stall_ms is not None:
        given += (Given("steady", _steady(load), PERCENT), Given("stall", load.stall_ms, MS))
        calculations += _stalls(load, load.stall_ms, window)
    capacity = format_amount(_capacity(load), PERCENT)
    above = f"the quota is above the broker's capacity of {capacity}: it never holds anybody back"
    return CalculatorAnswer(
        given=tuple(given), calculations=tuple(calculations), notes=(above,) if load.quota > _capacity(load) else ()
    )


def _capacity(load: RequestLoad) -> float:
    return (load.io_threads + load.network_threads) * 100.0


def _steady(load: RequestLoad) -> float:
    return load.quota if load.steady is None else load.steady


def _worth(load: RequestLoad, window: QuotaWindow) -> Calculation:
    """Calculate the quota in time per window, in threads, and as a share of the broker."""
    window_text, quota_text = format_amount(window.window_ms, MS), format_amount(load.quota, PERCENT)
    threads, capacity = load.io_threads + load.network_threads, _capacity(load)
    return Calculation(
        method="worth",
        title="what the quota is worth",
        source=KIP_124,
        steps=(
            Step("time per window", f"{quota_text} x {window_text}", load.quota * window.window_ms / 100, MS),
            Step("threads", f"{quota_text} / 100 %", load.quota / 100, THREADS),
            Step(
                "capacity",
                f"({load.io_threads} I/O + {load.network_threads} network threads) x 100 %",
                capacity,
                PERCENT,
            ),
            Step(
                "share of capacity", f"{quota_text} / {format_amount(capacity, PERCENT)}", load.quota / threads, PERCENT
            ),
        ),
    )


def _ceiling(load: RequestLoad, connections: int, request_ms: float, window: QuotaWindow) -> Calculation:
    """Calculate the most a client can use per window, max(quota, C * R), as a delay is at most one window."""
    allowed_ms, held_ms = load.quota * window.window_ms / 100, connections * request_ms
    most_ms = max(allowed_ms, held_ms)
    return Calculation(
        method="ceiling",
        title="the most that a client can use",
        source=KIP_124,
        steps=(
            Step("C * R", f"{connections} connections x {format_amount(request_ms, MS)}", held_ms, MS),
            Step("most per window", f"max({format_amount(allowed_ms, MS)}, {format_amount(held_ms, MS)})", most_ms, MS),
            Step(
                "most in per cent",
                f"{format_amount(most_ms, MS)} / {format_amount(window.window_ms, MS)}",
                most_ms / window.window_ms * 100,
                PERCENT,
            ),
        ),
    )


def _stalls(load: RequestLoad, stall_ms: float, window: QuotaWindow) -> Iterator[Calculation]:
    """Calculate by KIP-124, with all usage within one sample of the window, and by the shipped `Rate`."""
    steady_ms = _steady(load) * window.window_ms / 100
    steady = f"{format_amount(_steady(load), PERCENT)} x {format_amount(window.window_ms, MS)}"
    rate = (steady_ms + stall_ms) / window.window_ms * 100
    steps, delay_ms = _delay_steps(load, rate, window.window_ms, f"{steady} + {format_amount(stall_ms, MS)}", window)
    yield Calculation(method="kip-124", title="a stall, by KIP-124", source=KIP_124, steps=steps, delay_ms=delay_ms)
    # 1 ms is 0.1 % of a thread's second. The stall is at the start of a sample.
    found = after_steady_traffic(
        bound=load.quota, window=window, steady=_steady(load), amount=stall_ms / 10, moment=Moment.START
    )
    steps, delay_ms = _delay_steps(load, found.rate, found.window_ms, "sum of the samples kept", window)
    yield Calculation(
        method="kafka", title="a stall, by Kafka's rate", source=SHIPPED_FOR_REQUESTS, steps=steps, delay_ms=delay_ms
    )


def _delay_steps(
    load: RequestLoad, rate: float, window_ms: int, used: str, window: QuotaWindow
) -> tuple[tuple[Step, ...], int]:
    unbounded_ms = max(0, throttle_time_ms(rate, load.quota, window_ms))
    bounded_ms = min(unbounded_ms, window.window_ms)
    used_ms = rate * window_ms / 100
    rate_text, quota_text, window_text = (
        format_amount(rate, PERCENT),
        format_amount(load.quota, PERCENT),
        format_amount(window_ms, MS),
    )
    over = f"({rate_text} - {quota_text}) / {quota_text} x {window_text}"
    steps = (
        Step("thread time used", used, used_ms, MS),
        Step("usage", f"{format_amount(used_ms, MS)} / {window_text}", rate, PERCENT),
        Step(
            "delay, unbounded",
            over if rate > load.quota else f"{rate_text} is not above {quota_text}",
            unbounded_ms,
            MS,
        ),
        Step("delay", f"min({format_amount(unbounded_ms, MS)}, {format_amount(window.window_ms, MS)})", bounded_ms, MS),
    )
    return steps, bounded_ms
