"""What a request quota allows, and how long it delays a client.

Invariants: n % is n % of one thread; delays are at most one sample of the quota window (`quota.window.size.seconds`).
"""

from dataclasses import dataclass

from kafka_quotas.commands.throttle.arithmetic import Calculation, CalculatorAnswer, Given, Step
from kafka_quotas.commands.throttle.steady_traffic import Moment, after_steady_traffic
from kafka_quotas.core.metrics.throttle_time import throttle_time_ms
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.model.value_format import MS, PERCENT, format_amount

KIP_124 = "KIP-124, request quotas"
SHIPPED = "Kafka 4.x: ClientRequestQuotaManager, QuotaUtils.boundedThrottleTime"
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
    calculations = [_worth(load, window)]
    if load.connections is not None and load.request_ms is not None:
        calculations.append(_ceiling(load, load.connections, load.request_ms, window))
    if load.stall_ms is not None:
        calculations += [_kip_124(load, load.stall_ms, window), _shipped(load, load.stall_ms, window)]
    return CalculatorAnswer(given=_given(load), calculations=tuple(calculations), notes=_notes(load))


def _given(load: RequestLoad) -> tuple[Given, ...]:
    stall = (
        () if load.stall_ms is None else (Given("steady", _steady(load), PERCENT), Given("stall", load.stall_ms, MS))
    )
    return (Given("quota", load.quota, PERCENT), *stall)


def _notes(load: RequestLoad) -> tuple[str, ...]:
    capacity = _capacity(load)
    if load.quota <= capacity:
        return ()
    return (
        f"the quota is above the broker's capacity of {format_amount(capacity, PERCENT)}: it never holds anybody back",
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


def _kip_124(load: RequestLoad, stall_ms: float, window: QuotaWindow) -> Calculation:
    """Calculate by KIP-124, with all usage within one sample of the window."""
    steady_ms = _steady(load) * window.window_ms / 100
    steady = f"{format_amount(_steady(load), PERCENT)} x {format_amount(window.window_ms, MS)}"
    used = f"{steady} + {format_amount(stall_ms, MS)}"
    rate = (steady_ms + stall_ms) / window.window_ms * 100
    return Calculation(
        method="kip-124",
        title="a stall, by KIP-124",
        source=KIP_124,
        steps=_delay_steps(load, rate, window.window_ms, used=used, window=window),
        delay_ms=_delays(load, rate, window.window_ms, window)[1],
    )


def _shipped(load: RequestLoad, stall_ms: float, window: QuotaWindow) -> Calculation:
    """Calculate by the shipped `Rate`, with the stall at the start of a sample."""
    found = after_steady_traffic(
        bound=load.quota, window=window, steady=_steady(load), amount=stall_ms / 10, moment=Moment.START
    )  # 1 ms is 0.1 % of a thread's second
    return Calculation(
        method="kafka",
        title="a stall, by Kafka's rate",
        source=SHIPPED,
        steps=_delay_steps(load, found.rate, found.window_ms, used="sum of the samples kept", window=window),
        delay_ms=_delays(load, found.rate, found.window_ms, window)[1],
    )


def _delays(load: RequestLoad, rate: float, window_ms: int, window: QuotaWindow) -> tuple[int, int]:
    unbounded_ms = max(0, throttle_time_ms(rate, load.quota, window_ms))
    return unbounded_ms, min(unbounded_ms, window.window_ms)


def _delay_steps(load: RequestLoad, rate: float, window_ms: int, *, used: str, window: QuotaWindow) -> tuple[Step, ...]:
    unbounded_ms, bounded_ms = _delays(load, rate, window_ms, window)
    used_ms = rate * window_ms / 100
    rate_text, quota_text, window_text = (
        format_amount(rate, PERCENT),
        format_amount(load.quota, PERCENT),
        format_amount(window_ms, MS),
    )
    return (
        Step("thread time used", used, used_ms, MS),
        Step("usage", f"{format_amount(used_ms, MS)} / {window_text}", rate, PERCENT),
        Step(
            "delay, unbounded",
            f"({rate_text} - {quota_text}) / {quota_text} x {window_text}"
            if rate > load.quota
            else f"{rate_text} is not above {quota_text}",
            unbounded_ms,
            MS,
        ),
        Step("delay", f"min({format_amount(unbounded_ms, MS)}, {format_amount(window.window_ms, MS)})", bounded_ms, MS),
    )
