"""How long a byte-rate quota delays a client: KIP-13's arithmetic, and what Kafka shipped.

Invariants: the shipped figures come from replaying the traffic through the same `Rate` that enforcement uses.
"""

from dataclasses import dataclass

from kafka_quotas.commands.throttle.arithmetic import Calculation, CalculatorAnswer, Given, Step
from kafka_quotas.commands.throttle.steady_traffic import Moment, after_steady_traffic
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.metrics.throttle_time import throttle_time_ms
from kafka_quotas.core.model.quota_window import DEFAULT_WINDOW, QuotaWindow
from kafka_quotas.core.model.value_format import BYTES, BYTES_PER_SECOND, MS, format_amount

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
