"""A load test's report: one page that answers, in this order, whether the quotas held and whom they harmed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kafka_quotas import loadtest
from kafka_quotas.cli.charts.html_page import KeyFigure, Mood, ReportPage, ReportSection
from kafka_quotas.cli.load_test.views.charts import (
    against_bounds,
    isolation,
    latencies,
    later_topics,
    throttling,
)
from kafka_quotas.cli.load_test.views.view import achieved_text, client_cells, first_entities, is_over_quota
from kafka_quotas.cli.output.listing import Table
from kafka_quotas.core.model.value_format import format_count, format_duration_us

_MOST_JUDGEMENTS = 60
_MOODS = {
    loadtest.State.MET: Mood.GOOD,
    loadtest.State.UNCHECKED: Mood.PLAIN,
    loadtest.State.UNDECIDED: Mood.WATCH,
    loadtest.State.NOT_MET: Mood.BAD,
    loadtest.State.VOID: Mood.WATCH,
}
"""How the reader should take each state, in the order in which they are counted."""


def load_page(result: loadtest.LoadResult) -> ReportPage:
    """Return the whole page."""
    sections = (
        _clients(result),
        against_bounds(result),
        throttling(result),
        latencies(result),
        isolation(result),
        later_topics(result),
        _judgements(result),
        _method(result),
    )
    moment = datetime.fromtimestamp(result.started_ms / 1000, UTC).strftime("%d %B %Y %H:%M:%S")
    return ReportPage(
        title=f"Load test: {result.title}",
        subtitle=f"{result.bootstrap}, {moment} UTC, {result.elapsed_s:.0f} s ({result.warmup_s:.0f} s of them "
        f"warm-up), quota window {result.window.samples} x {result.window.window_s} s",
        summary=summary_text(result),
        figures=(_verdict(result), _ratio(result), _throttled(result), _delivered(result), _machine(result)),
        sections=tuple(section for section in sections if section is not None),
    )


def _verdict(result: loadtest.LoadResult) -> KeyFigure:
    counts = Counter(judgement.state for judgement in result.judgements)
    note = ", ".join(
        f"{counts[state]} {'failed' if state is loadtest.State.NOT_MET else state.value}"
        for state in _MOODS
        if counts[state] or state in (loadtest.State.MET, loadtest.State.NOT_MET)
    )
    return KeyFigure(label="Verdict", value=result.state.value, note=f"judgements: {note}", mood=_MOODS[result.state])


def _ratio(result: loadtest.LoadResult) -> KeyFigure:
    judged = [each for each in result.entities if each.verdict.ratio is not None and each.verdict.upper is not None]
    if not judged:
        return KeyFigure(label="Achieved / quota", value="no quota", note="no client offered more than its quota")
    worst = max(judged, key=lambda each: abs((each.verdict.ratio or 0) - 1))
    return KeyFigure(
        label="Achieved / quota",
        value=f"{worst.verdict.ratio:.3f}",
        note=worst.name.label if len(judged) == 1 else f"worst of {len(judged)} clients: {worst.name.label}",
        mood=Mood.GOOD if worst.verdict.ok else Mood.BAD,
    )


def _throttled(result: loadtest.LoadResult) -> KeyFigure:
    count = sum(entity.throttle.count for entity in result.entities)
    total_ms = sum(entity.throttle.sum_ms for entity in result.entities)
    longest_ms = max((entity.throttle.max_ms for entity in result.entities), default=0.0)
    if not count:
        return KeyFigure(label="Throttled", value="never")
    note = f"{count:,} times, {format_duration_us(longest_ms * 1000)} at the longest"
    return KeyFigure(label="Throttled", value=format_duration_us(total_ms * 1000), note=note)


def _delivered(result: loadtest.LoadResult) -> KeyFigure:
    written = [entity for entity in result.entities if entity.workload is loadtest.Workload.PRODUCE]
    acked = sum(entity.acked for entity in written)
    failed = sum(count for entity in result.entities for _, count in entity.failures)
    deliveries = [entity.delivery for entity in result.entities if entity.delivery is not None]
    lost, duplicated, found = (sum(getattr(each, of) for each in deliveries) for of in ("lost", "duplicated", "found"))
    read_back = f"{found:,} of them" if deliveries else "none"
    if failed or lost or duplicated:
        note = f"{read_back} read back; {lost:,} lost, {duplicated:,} duplicated, {failed:,} failed"
        return KeyFigure(label="Written records", value=f"{acked:,}", note=note, mood=Mood.BAD)
    is_whole = bool(deliveries) and all(delivery.state is loadtest.State.MET for delivery in deliveries)
    outcome = "none lost, none twice" + ("" if is_whole else " among these") if found else "loss was not checked"
    note = f"{read_back} read back; {outcome}"
    return KeyFigure(label="Written records", value=f"{acked:,}", note=note, mood=Mood.GOOD if is_whole else Mood.PLAIN)


def _machine(result: loadtest.LoadResult) -> KeyFigure:
    cpu = result.cpu
    note = "; ".join(result.warnings) or f"of {cpu.cores} cores: the load tester was not the bottleneck"
    mood = Mood.WATCH if result.warnings else Mood.PLAIN
    return KeyFigure(label="Load tester's CPU", value=f"{cpu.process:.2f} cores", note=note, mood=mood)


def _clients(result: loadtest.LoadResult) -> ReportSection:
    shown = first_entities(result)
    all_of = "" if len(shown) == len(result.entities) else f" {len(shown)} of {len(result.entities)} clients are shown."
    return ReportSection(
        "Did every client get what its quota promises?",
        "A client that offers more than its quota is to get its quota, no more and no less; one that offers "
        "less, or has no quota, is to get all it offers. The rate is taken over whole throttle cycles." + all_of,
        tables=(
            Table.of(
                "Client, Does, Achieved>, Quota>, Ratio>, Throttled>, p99>, Verdict",
                [_row(entity, result) for entity in shown],
            ),
        ),
    )


def _row(entity: loadtest.ClientResult, result: loadtest.LoadResult) -> tuple[str, ...]:
    label = entity.name.label + (" (control)" if entity.control else "")
    return (label, f"{entity.workload.value}, {entity.client.value}", *client_cells(entity, result))


def _judgements(result: loadtest.LoadResult) -> ReportSection:
    order = sorted(result.judgements, key=lambda judgement: judgement.ok)  # those that failed first
    more = max(len(order) - _MOST_JUDGEMENTS, 0)
    return ReportSection(
        "The evidence",
        tables=(
            Table.of(
                "About, What, Verdict, Evidence",
                [
                    (each.entity or "the run", each.aspect.label, each.state.value, each.evidence)
                    for each in order[:_MOST_JUDGEMENTS]
                ],
                f"{more} more are in run.json" if more else "",
            ),
        ),
    )


def _method(result: loadtest.LoadResult) -> ReportSection:
    return ReportSection(
        "How it was measured",
        "Arrivals were due on a schedule fixed beforehand. Service is the time from sending to the answer, "
        "schedule delay that from the due time to sending, and response is both: what an application would "
        "feel. Nothing is corrected afterwards. Latencies leave out the warm-up; counts and throttle times "
        "do not.",
        "The first quota window fills from nothing, so a burst passes unthrottled in it. It is shown, and not judged.",
        f"Run {result.run_id:016x}. All figures are in run.json beside this page.",
    )


_MOST_NAMES = 4


def summary_text(result: loadtest.LoadResult) -> str:
    """Return the sentences, for readers who don't run Kafka."""
    return " ".join(_sentences(result))


def _sentences(result: loadtest.LoadResult) -> Iterator[str]:
    void = [each for each in result.judgements if each.state is loadtest.State.VOID]
    if void:
        yield f"This run proves nothing: {void[0].evidence}."
        return
    yield from _rate_sentences(result)
    yield from _neighbours(result)
    yield from _record_sentences(result)
    open_ones = sum(each.state is loadtest.State.UNCHECKED for each in result.judgements)
    if open_ones:
        yield f"{format_count(open_ones, 'judgement')} of {len(result.judgements)} could not be checked."


def _rate_sentences(result: loadtest.LoadResult) -> Iterator[str]:
    greedy = [each for each in result.entities if each.verdict.kind is loadtest.ObservationKind.GREEDY]
    held = [each for each in greedy if each.verdict.ok]
    if held:
        furthest = max(abs((each.verdict.ratio or 0.0) - 1) for each in held)
        whose = f"its quota of {held[0].unit.text(held[0].verdict.quota or 0.0)}" if len(held) == 1 else "their quotas"
        was = "was" if len(held) == 1 else "were"
        yield f"{_names(held)} wanted more and {was} held to {whose}, to within {max(furthest, 0.001):.1%}."
    for each in greedy:
        if not each.verdict.ok:
            got, quota = achieved_text(each), each.unit.text(each.verdict.quota or 0.0)
            if is_over_quota(each.verdict):
                yield f"{each.name.label} was not held to its quota: it got {got} where {quota} are allowed."
            else:
                yield f"{each.name.label} got too little: {got} of the {quota} that its quota allows."
    others = [
        each
        for each in result.entities
        if each.verdict.kind in (loadtest.ObservationKind.MODEST, loadtest.ObservationKind.UNLIMITED)
        and not each.control
    ]
    for is_served, ending in (
        (True, "got all that {} asked for."),
        (False, "did not get all that {} should have got."),
    ):
        alike = [each for each in others if each.verdict.ok is is_served]
        if alike:
            yield f"{_names(alike)} {ending.format('it' if len(alike) == 1 else 'they')}"


def _neighbours(result: loadtest.LoadResult) -> Iterator[str]:
    for each in result.entities:
        states = [
            judgement.state
            for judgement in result.judgements
            if judgement.aspect is loadtest.Aspect.ISOLATION and judgement.entity == each.name.label
        ]
        if not states or each.solo is None or not each.response.count:
            continue
        beside, alone = format_duration_us(each.response.p99_us), format_duration_us(each.solo.p99_us)
        felt = f"its p99 was {beside} alongside the others, and {alone} alone"
        yield f"{each.name.label} {_fate(each, states[0])}; {felt}."


def _fate(control: loadtest.ClientResult, state: loadtest.State) -> str:
    """Return what the quotas did for a client whose neighbours they limit."""
    effect = control.effect
    if state is loadtest.State.MET and effect is not None:
        return f"was spared by the quotas, without which it waits {effect.ratio:.2g} times as long"
    if state is loadtest.State.NOT_MET and effect is not None and effect.is_refuted:
        return "waits as long without the quotas as with them"
    if state is loadtest.State.NOT_MET:
        return "was disturbed by its neighbours"
    return "was barely affected; the run can't show whether the quotas are why"


def _record_sentences(result: loadtest.LoadResult) -> Iterator[str]:
    deliveries = [each.delivery for each in result.entities if each.delivery is not None]
    for name, noun, fate in (("lost", "acknowledged record", "lost"), ("duplicated", "record", "stored twice")):
        count = sum(getattr(each, name) for each in deliveries)
        if count:
            yield f"{format_count(count, noun, separator=',')} {'was' if count == 1 else 'were'} {fate}."


def _names(entities: Sequence[loadtest.ClientResult]) -> str:
    labels = [each.name.label for each in entities]
    if len(labels) > _MOST_NAMES:
        return f"{len(labels)} clients ({', '.join(labels[:2])} and others)"
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
