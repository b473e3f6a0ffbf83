"""What byte-rate and request quotas allow, and how long they delay a client: every figure with its arithmetic.

Invariants: values are plain numbers in the unit named beside them, and the arithmetic, which is for people, may be
rounded. The shipped figures come from replaying the traffic through the same `Rate` that enforcement uses. n % is n %
of one thread, and the delay of a request quota is at most one sample of the quota window.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Annotated, ClassVar, Final

from kafka_quotas.core.described import Described, Sentences
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.rate import Rate
from kafka_quotas.core.metrics.throttle_time import throttle_time_ms
from kafka_quotas.core.model.quota_key import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.setting import TextForm, setting
from kafka_quotas.core.model.value_format import (
    BYTES,
    BYTES_PER_SECOND,
    MS,
    PERCENT,
    format_amount,
    format_number,
    parse_bytes,
    parse_duration_ms,
    parse_quota_value,
)

_MOST: Final = 1e15
"""A larger figure than any quota, amount or duration that means something; doubles are exact up to here."""


def _figure(parse: Callable[[str], Fraction], text: str, *, zero: bool = False) -> float:
    try:
        value = float(parse(text))
    except UsageError as error:
        hint = error.hint and error.hint.removesuffix(", unlimited")  # nothing to calculate with
        raise UsageError(error.message, hint=hint) from error
    except OverflowError as error:
        raise UsageError(f"too large: {text}", hint=f"at most {_MOST:.0f}") from error
    return in_range(text, value, zero=zero)


def in_range(text: str, value: float, *, zero: bool = False) -> float:
    """Return the value of a figure, if it is one that means something: above 0, or 0 if it may be."""
    if value < 0 or (value == 0 and not zero):
        raise UsageError(f"must be {'0 or more' if zero else 'above 0'}, not {text}", hint="see the option in --help")
    if value > _MOST:
        raise UsageError(f"too large: {text}", hint=f"at most {_MOST:.0f}")
    return value


def _form(parse: Callable[[str], Fraction], *, zero: bool = False) -> TextForm:
    return TextForm(read=partial(_figure, parse, zero=zero), pattern="", write=format_number)


BYTES_FORM: Final = _form(parse_bytes)
"""Bytes, or bytes per second."""
BYTES_OR_NONE: Final = _form(parse_bytes, zero=True)
PERCENT_FORM: Final = _form(lambda text: Fraction(parse_quota_value(REQUEST_PERCENTAGE, text)))
"""Per cent of one thread."""
PERCENT_OR_NONE: Final = _form(lambda text: Fraction(parse_quota_value(REQUEST_PERCENTAGE, text)), zero=True)
MUTATIONS_FORM: Final = _form(lambda text: Fraction(parse_quota_value(CONTROLLER_MUTATION_RATE, text)))
"""Partitions per second."""
DURATION_FORM: Final = _form(parse_duration_ms)
"""Milliseconds."""
DURATION_OR_NONE: Final = _form(parse_duration_ms, zero=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One figure of a calculation, with its arithmetic, by position like the row of a table."""

    DOCUMENT: ClassVar = "figure=name arithmetic value=rounded unit"
    name: str
    arithmetic: str
    value: float
    unit: str

    @property
    def rounded(self) -> float:
        """The value without the noise of a sum of doubles."""
        return without_noise(self.value)


def without_noise(value: float) -> float:
    """Round the value to twelve digits.

    Beyond the thirteenth digit a sum of doubles holds rounding errors only.
    """
    return float(f"{value:.12g}")


@dataclass(frozen=True, slots=True)
class Calculation:
    """One way to calculate, with its steps, by position."""

    DOCUMENT: ClassVar = "method title source delay_ms steps"
    method: str
    """Short name for machines."""
    title: str
    source: str
    steps: tuple[Step, ...]
    delay_ms: Annotated[int | None, Described(text="null for a method that yields no delay")] = None


@dataclass(frozen=True, slots=True)
class Given:
    """A figure that an answer starts from."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CalculatorAnswer:
    """The answer of a calculator command: given figures, calculations, and notes on them."""

    DOCUMENT: ClassVar = (
        "given window.num=window.samples window.size_seconds=window.window_s window.origin=origin delay_ms "
        "calculations notes"
    )
    window: QuotaWindow
    given: tuple[Given, ...]
    calculations: tuple[Calculation, ...]
    notes: Sentences = ()
    origin: str = ""
    """Where the window came from."""

    @property
    def delay_ms(self) -> Annotated[Mapping[str, int], Described(text="by method", columns=("method", "delay_ms"))]:
        """The delay of each method that yields one."""
        return {each.method: each.delay_ms for each in self.calculations if each.delay_ms is not None}


REQUESTS_PER_SAMPLE: Final = 10
"""Equal requests per sample of steady traffic."""
MOST_SAMPLES: Final = 100_000
"""Most samples of a window: a longer history would take longer than a person waits."""
KIP_13_SAMPLES: Final = 10
_SHIPPED: Final = "Kafka 4.x: Rate, SampledStat, QuotaUtils.throttleTime"
_KIP_124: Final = "KIP-124, request quotas"
DEFAULT_IO_THREADS: Final = 8
DEFAULT_NETWORK_THREADS: Final = 3
_OVER: Final = TextForm(read=lambda text: max(round(DURATION_FORM.read(text)), 1), pattern="")
_ms, _size, _rate, _percent = (partial(format_amount, unit=unit) for unit in (MS, BYTES, BYTES_PER_SECOND, PERCENT))


def _rate_after(window: QuotaWindow, *, steady: float, amount: float, at_end: bool = False) -> tuple[float, int]:
    """Measure Kafka's `Rate` after a full window of `steady` traffic per second and a request of `amount`.

    The request begins a new sample, or is the last, and only, one of its sample (`at_end`).

    Returns:
        The rate per second, and the window in ms that it was measured over.
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
    now_ms = start_ms + window.window_ms - between_ms if at_end else start_ms
    rate.record(amount, now_ms)
    return rate.measure(now_ms), rate.window_ms(now_ms)


_traffic, _load = partial(setting, "traffic", default=None), partial(setting, "load", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTraffic:
    """A quota and a client's traffic, an `observed` rate or a `burst` after a `steady` rate, in bytes/s."""

    quota: float = setting("traffic", "--quota RATE", "The allowed byte rate, for example 5MB/s.", BYTES_FORM)
    observed: float | None = _traffic("--observed RATE", "The measured byte rate, for example 6MB/s.", BYTES_OR_NONE)
    over_ms: int | None = _traffic(
        "--over TIME", "What --observed was measured over. Default: the quota window.", _OVER
    )
    steady: float | None = _traffic("--steady RATE", "The byte rate before --burst. Default 0.", BYTES_OR_NONE)
    burst: float | None = _traffic("--burst SIZE", "The bytes sent within one sample, for example 15MB.", BYTES_OR_NONE)


def throttle_rate(traffic: RateTraffic, window: QuotaWindow) -> CalculatorAnswer:
    """Calculate the delay of a byte-rate quota, by KIP-13 and as shipped where they may differ."""
    if traffic.steady is not None and traffic.burst is None:
        raise UsageError("--steady goes with --burst", hint="--steady 5MB/s --burst 15MB, or --observed 6MB/s")
    if (traffic.observed is None) == (traffic.burst is None):
        raise UsageError("give either --observed or --burst", hint="--observed 6MB/s, or --steady 5MB/s --burst 15MB")
    if traffic.observed is not None:
        return _observed(traffic, traffic.observed, window)
    if traffic.over_ms is not None:
        raise UsageError("--over goes with --observed", hint="a burst falls into one sample of the quota window")
    assert traffic.burst is not None
    return _burst(traffic, traffic.burst, window)


def _observed(traffic: RateTraffic, observed: float, window: QuotaWindow) -> CalculatorAnswer:
    windows = [
        ("shortest", "over Kafka's shortest window", _shortest_ms(window)),
        ("longest", "over its longest window", _longest_ms(window)),
    ]
    if traffic.over_ms is not None:
        windows = [("given", "over the given window", traffic.over_ms)]
    return CalculatorAnswer(
        window=window,
        given=(Given("quota", traffic.quota, BYTES_PER_SECOND), Given("observed", observed, BYTES_PER_SECOND)),
        calculations=tuple(
            _delayed(f"{method}-window", f"observed {place}", "KIP-13, KIP-124: X = (O - T) / T * W", steps)
            for method, place, window_ms in windows
            for steps in (_rate_steps(observed, traffic.quota, window_ms),)
        ),
        notes=() if traffic.over_ms is not None else (_kept(window),),
    )


def _burst(traffic: RateTraffic, burst: float, window: QuotaWindow) -> CalculatorAnswer:
    steady, shipped = traffic.steady or 0.0, []
    for moment, at_end in (("start", False), ("end", True)):
        rate, window_ms = _rate_after(window, steady=steady, amount=burst, at_end=at_end)
        steps = _rate_steps(rate, traffic.quota, window_ms, produced_known=True)
        shipped.append(_delayed(f"kafka-{moment}", f"Kafka, {moment} of a sample", _SHIPPED, steps))
    return CalculatorAnswer(
        window=window,
        given=(
            Given("quota", traffic.quota, BYTES_PER_SECOND),
            Given("steady", steady, BYTES_PER_SECOND),
            Given("burst", burst, BYTES),
        ),
        calculations=(_kip_13(traffic, burst, window), *shipped),
        notes=(
            f"KIP-13 counts {_kip_13_samples(window)} samples, the burst's own as the last",
            "the delay Kafka gives depends on where in one of its samples the burst falls",
            _kept(window),
        ),
    )


def _delayed(method: str, title: str, source: str, steps: tuple[Step, ...]) -> Calculation:
    """Return a calculation whose last step is the delay."""
    return Calculation(method, title, source, steps, int(steps[-1].value))


def _kip_13(traffic: RateTraffic, burst: float, window: QuotaWindow) -> Calculation:
    """Calculate by KIP-13: all but the last sample have the steady rate, the last one the burst."""
    samples, quota = _kip_13_samples(window), traffic.quota
    window_ms, per_sample = samples * window.window_ms, (traffic.steady or 0.0) * window.window_s
    produced, allowed = (samples - 1) * per_sample + burst, quota * window_ms / 1000
    rate = produced / (window_ms / 1000)
    delay_ms = max(0, throttle_time_ms(rate, quota, window_ms))
    steps = (
        Step("window", f"{samples} x {_ms(window.window_ms)}", window_ms, MS),
        Step("produced", f"{samples - 1} x {_size(per_sample)} + {_size(burst)}", produced, BYTES),
        Step("bound", f"{_rate(quota)} x {_ms(window_ms)}", allowed, BYTES),
        Step("rate", f"{_size(produced)} / {_ms(window_ms)}", rate, BYTES_PER_SECOND),
        Step("delay", f"({_size(produced)} - {_size(allowed)}) / {_rate(quota)}", delay_ms, MS),
    )
    return _delayed("kip-13", "KIP-13", "KIP-13, delay time in QuotaViolationException", steps)


def _kip_13_samples(window: QuotaWindow) -> int:
    """Return how many samples KIP-13 would count: its N of 10 shipped as 11, the current one included."""
    return KIP_13_SAMPLES if window.samples == DEFAULT_WINDOW.samples else window.samples


def _rate_steps(rate: float, quota: float, window_ms: int, *, produced_known: bool = False) -> tuple[Step, ...]:
    """Return the steps from a rate over a window to the delay: X = (O - T) / T * W."""
    produced = rate * window_ms / 1000
    if produced_known:
        origins = (
            "since the oldest sample kept began",
            "sum of the samples kept",
            f"{_size(produced)} / {_ms(window_ms)}",
        )
    else:
        origins = ("as given by the quota window", f"{_rate(rate)} x {_ms(window_ms)}", "observed")
    return (
        Step("window", origins[0], window_ms, MS),
        Step("produced", origins[1], produced, BYTES),
        Step("bound", f"{_rate(quota)} x {_ms(window_ms)}", quota * window_ms / 1000, BYTES),
        Step("rate", origins[2], rate, BYTES_PER_SECOND),
        Step(
            "delay",
            _excess(_rate(rate), _rate(quota), window_ms, is_over=rate > quota),
            max(0, throttle_time_ms(rate, quota, window_ms)),
            MS,
        ),
    )


def _excess(rate: str, quota: str, window_ms: int, *, is_over: bool) -> str:
    return f"({rate} - {quota}) / {quota} x {_ms(window_ms)}" if is_over else f"{rate} is not above {quota}"


def _shortest_ms(window: QuotaWindow) -> int:
    return max(window.samples - 1, 1) * window.window_ms


def _longest_ms(window: QuotaWindow) -> int:
    """Return the time in ms that Kafka's window never reaches.

    Kafka keeps a sample by the time since its last record, not since its start.
    """
    return (window.samples + 1) * window.window_ms


def _kept(window: QuotaWindow) -> str:
    return (
        "Kafka divides by the time since the oldest sample kept began: "
        f"at least {_ms(_shortest_ms(window))}, under steady traffic up to {_ms(_longest_ms(window))}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLoad:
    """A request quota, the broker's threads, and a client's load."""

    quota: float = setting(
        "load", "--quota PERCENT", "request_percentage: % of one thread, for example 0.1%.", PERCENT_FORM
    )
    stall_ms: float | None = _load(
        "--stall TIME", "Thread time of one long request, for example 100ms.", DURATION_OR_NONE
    )
    steady: float | None = _load("--steady PERCENT", "The usage before --stall. Default: the quota.", PERCENT_OR_NONE)
    io_threads: int = setting("load", "--io-threads N", "num.io.threads.", default=DEFAULT_IO_THREADS, least=1)
    network_threads: int = setting(
        "load", "--network-threads N", "num.network.threads.", default=DEFAULT_NETWORK_THREADS, least=1
    )
    connections: int | None = _load("--connections C", "Connections of the client.", least=1)
    request_ms: float | None = _load(
        "--request-time R", "Thread time of one request, for example 25ms.", DURATION_OR_NONE
    )


def throttle_request(load: RequestLoad, window: QuotaWindow) -> CalculatorAnswer:
    """Calculate the quota's worth, the most a client can use, and the delay of a stall."""
    if (load.connections is None) != (load.request_ms is None):
        raise UsageError("--connections and --request-time go together", hint="--connections 10 --request-time 25ms")
    if load.steady is not None and load.stall_ms is None:
        raise UsageError("--steady goes with --stall", hint="--steady 0.1% --stall 100ms")
    given = [Given("quota", load.quota, PERCENT)]
    capacity = (load.io_threads + load.network_threads) * 100.0
    calculations = [_worth(load, capacity, window)]
    if load.connections is not None and load.request_ms is not None:
        calculations.append(_ceiling(load.quota, load.connections, load.request_ms, window))
    if load.stall_ms is not None:
        steady = load.quota if load.steady is None else load.steady
        given += (Given("steady", steady, PERCENT), Given("stall", load.stall_ms, MS))
        calculations += _stalls(load.quota, steady, load.stall_ms, window)
    above = f"the quota is above the broker's capacity of {_percent(capacity)}: it never holds anybody back"
    return CalculatorAnswer(
        window=window,
        given=tuple(given),
        calculations=tuple(calculations),
        notes=(above,) if load.quota > capacity else (),
    )


def _worth(load: RequestLoad, capacity: float, window: QuotaWindow) -> Calculation:
    quota, threads = _percent(load.quota), f"{load.io_threads} I/O + {load.network_threads} network threads"
    steps = (
        Step("time per window", f"{quota} x {_ms(window.window_ms)}", load.quota * window.window_ms / 100, MS),
        Step("threads", f"{quota} / 100 %", load.quota / 100, "threads"),
        Step("capacity", f"({threads}) x 100 %", capacity, PERCENT),
        Step("share of capacity", f"{quota} / {_percent(capacity)}", load.quota / capacity * 100, PERCENT),
    )
    return Calculation("worth", "what the quota is worth", _KIP_124, steps)


def _ceiling(quota: float, connections: int, request_ms: float, window: QuotaWindow) -> Calculation:
    """Calculate the most a client can use per window, max(quota, C * R), as a delay is at most one window."""
    allowed_ms, held_ms = quota * window.window_ms / 100, connections * request_ms
    most_ms = max(allowed_ms, held_ms)
    share = most_ms / window.window_ms * 100
    steps = (
        Step("C * R", f"{connections} connections x {_ms(request_ms)}", held_ms, MS),
        Step("most per window", f"max({_ms(allowed_ms)}, {_ms(held_ms)})", most_ms, MS),
        Step("most in per cent", f"{_ms(most_ms)} / {_ms(window.window_ms)}", share, PERCENT),
    )
    return Calculation("ceiling", "the most that a client can use", _KIP_124, steps)


def _stalls(quota: float, steady: float, stall_ms: float, window: QuotaWindow) -> Iterator[Calculation]:
    """Calculate by KIP-124, with all usage within one sample of the window, and by the shipped `Rate`."""
    rate = (steady * window.window_ms / 100 + stall_ms) / window.window_ms * 100
    used = f"{_percent(steady)} x {_ms(window.window_ms)} + {_ms(stall_ms)}"
    steps = _stall_steps(quota, rate, window.window_ms, used, window)
    yield _delayed("kip-124", "a stall, by KIP-124", _KIP_124, steps)
    # 1 ms is 0.1 % of a thread's second. The stall is at the start of a sample.
    rate, window_ms = _rate_after(window, steady=steady, amount=stall_ms / 10)
    steps = _stall_steps(quota, rate, window_ms, "sum of the samples kept", window)
    source = "Kafka 4.x: ClientRequestQuotaManager, QuotaUtils.boundedThrottleTime"
    yield _delayed("kafka", "a stall, by Kafka's rate", source, steps)


def _stall_steps(quota: float, rate: float, window_ms: int, used: str, window: QuotaWindow) -> tuple[Step, ...]:
    unbounded_ms = max(0, throttle_time_ms(rate, quota, window_ms))
    bounded_ms, used_ms = min(unbounded_ms, window.window_ms), rate * window_ms / 100
    excess = _excess(_percent(rate), _percent(quota), window_ms, is_over=rate > quota)
    return (
        Step("thread time used", used, used_ms, MS),
        Step("usage", f"{_ms(used_ms)} / {_ms(window_ms)}", rate, PERCENT),
        Step("delay, unbounded", excess, unbounded_ms, MS),
        Step("delay", f"min({_ms(unbounded_ms)}, {_ms(window.window_ms)})", bounded_ms, MS),
    )
