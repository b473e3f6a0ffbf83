"""The result of a load test in a few plain sentences: who was held to what, and what the neighbours felt."""

from collections.abc import Iterator, Sequence

from kafka_quotas.cli.load_test.views.view import achieved_text, is_over_quota
from kafka_quotas.core.model.value_format import format_duration_us
from kafka_quotas.loadtest.judgement import Aspect, State
from kafka_quotas.loadtest.results.result import ClientResult, LoadResult
from kafka_quotas.loadtest.results.throttle_cycles import ObservationKind

_MOST_NAMES = 4


def summary_text(result: LoadResult) -> str:
    """Return the sentences, for readers who don't run Kafka."""
    return " ".join(_sentences(result))


def _sentences(result: LoadResult) -> Iterator[str]:
    void = [each for each in result.judgements if each.state is State.VOID]
    if void:
        yield f"This run proves nothing: {void[0].evidence}."
        return
    yield from _rates(result)
    yield from _neighbours(result)
    yield from _records(result)
    open_ones = sum(each.state is State.UNCHECKED for each in result.judgements)
    if open_ones:
        yield f"{_number(open_ones, 'judgement')} of {len(result.judgements)} could not be checked."


def _rates(result: LoadResult) -> Iterator[str]:
    greedy = [each for each in result.entities if each.verdict.kind is ObservationKind.GREEDY]
    held = [each for each in greedy if each.verdict.ok]
    if held:
        furthest = max(abs((each.verdict.ratio or 0.0) - 1) for each in held)
        whose = f"its quota of {held[0].unit.text(held[0].verdict.quota or 0.0)}" if len(held) == 1 else "their quotas"
        yield f"{_names(held)} wanted more and {_was(held)} held to {whose}, to within {max(furthest, 0.001):.1%}."
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
        if each.verdict.kind in (ObservationKind.MODEST, ObservationKind.UNLIMITED) and not each.control
    ]
    served = [each for each in others if each.verdict.ok]
    hindered = [each for each in others if not each.verdict.ok]
    if served:
        yield f"{_names(served)} got all that {_it(served)} asked for."
    if hindered:
        yield f"{_names(hindered)} did not get all that {_it(hindered)} should have got."


def _neighbours(result: LoadResult) -> Iterator[str]:
    for each in result.entities:
        judged = next(
            (
                judgement
                for judgement in result.judgements
                if judgement.aspect is Aspect.ISOLATION and judgement.entity == each.name.label
            ),
            None,
        )
        if judged is None or each.solo is None or not each.response.count:
            continue
        beside, alone = format_duration_us(each.response.p99_us), format_duration_us(each.solo.p99_us)
        felt = f"its p99 was {beside} alongside the others, and {alone} alone"
        yield f"{each.name.label} {_fate(each, judged.state)}; {felt}."


def _fate(control: ClientResult, state: State) -> str:
    """Return what the quotas did for a client whose neighbours they limit."""
    effect = control.effect
    if state is State.MET and effect is not None:
        return f"was spared by the quotas, without which it waits {effect.ratio:.2g} times as long"
    if state is State.NOT_MET and effect is not None and effect.is_refuted:
        return "waits as long without the quotas as with them"
    if state is State.NOT_MET:
        return "was disturbed by its neighbours"
    return "was barely affected; the run can't show whether the quotas are why"


def _records(result: LoadResult) -> Iterator[str]:
    deliveries = [each.delivery for each in result.entities if each.delivery is not None]
    lost, twice = (sum(getattr(each, name) for each in deliveries) for name in ("lost", "duplicated"))
    if lost:
        yield f"{_number(lost, 'acknowledged record')} {'was' if lost == 1 else 'were'} lost."
    if twice:
        yield f"{_number(twice, 'record')} {'was' if twice == 1 else 'were'} stored twice."


def _names(entities: Sequence[ClientResult]) -> str:
    labels = [each.name.label for each in entities]
    if len(labels) > _MOST_NAMES:
        return f"{len(labels)} clients ({', '.join(labels[:2])} and others)"
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _was(entities: Sequence[ClientResult]) -> str:
    return "was" if len(entities) == 1 else "were"


def _it(entities: Sequence[ClientResult]) -> str:
    return "it" if len(entities) == 1 else "they"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
