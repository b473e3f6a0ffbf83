"""`--find-rate` of `load-test run`: its options, and what the search found as a table and a document."""

import sys
from dataclasses import fields

from kafka_quotas.cli.framework.option_groups import option, option_group
from kafka_quotas.cli.load_test.options import seconds
from kafka_quotas.cli.load_test.result_output import ResultOutput
from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.render import Listing, Output, Table, columns, folded, print_listing, write
from kafka_quotas.commands.load_test.find_rate import FoundRate, RateGoal, TriedRate, parse_target
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.value_format import format_rounded
from kafka_quotas.loadtest.plan.workload import RateUnit

_NOUN = "load-rate"
_TIME = "15min"


@option_group("Search for a rate")
class SearchOptions:
    """The options of the search for the highest rate that keeps a target."""

    find_rate: str | None = option(
        "--find-rate TARGET",
        help="Search for the highest rate that keeps this target, such as 'p99<50ms' or 'throttle.count == 0': short "
        "runs at multiples of the scenario's rates, repeated until both that rate and the next one above are sure.",
    )
    find_within: str | None = option(
        "--find-within TIME", help=f"How long that may take before it is undecided. Default: {_TIME}."
    )

    @property
    def goal(self) -> RateGoal | None:
        """The goal of the search, None for no search.

        Raises:
            UsageError: The target is no threshold, or a time is given without a target.
        """
        if self.find_rate is None:
            if self.find_within is not None:
                raise UsageError("--find-within belongs to a search", hint="add --find-rate 'p99<50ms'")
            return None
        return RateGoal(target=parse_target(self.find_rate), time_s=seconds(self.find_within or _TIME))


def check_search_output(output: ResultOutput) -> None:
    """Check that nothing is asked for that belongs to one run.

    Raises:
        UsageError: Files, plots or repeats are asked for.
    """
    asked = {field.name: getattr(output, field.name) for field in fields(output) if field.name != "output"}
    if asked != {"plot": None, "out": None, "junit": None, "repeat": 1}:
        raise UsageError(
            "--find-rate keeps no run and draws none", hint="leave --out, --plot, --junit and --repeat out"
        )


def print_found(found: FoundRate, output: Output) -> None:
    """Print what a search found, with its conclusion where the output is a table."""
    print_listing(_listing(found), output)
    if output is Output.TABLE:
        write(folded(f"find rate: {found.state.value}: {found.evidence}"), sys.stdout)
    for leftover in found.leftovers:
        write(f"warning: {leftover}", sys.stderr)


def _listing(found: FoundRate) -> Listing:
    runs = sum(each.tally.runs for each in found.rates)
    return Listing(
        noun=_NOUN,
        data={
            "ok": found.ok,
            "scenario": found.scenario,
            "target": found.target.text,
            "state": found.state.value,
            "evidence": found.evidence,
            "run_s": found.run_s,
            "low": None if found.low is None else _document(found.low),
            "high": None if found.high is None else _document(found.high),
            "rates": [_document(each) for each in found.rates],
        },
        table=Table(
            columns=columns(f"rates>, offered>, kept>, {found.target.metric.name}>"),
            rows=[
                [f"x {format_rounded(each.factor, 4)}", each.text, _kept(each), _figures(each, found)]
                for each in found.rates
            ],
            caption=f"{found.scenario}: {found.target.text}, {runs} runs of {found.run_s:g} s",
        ),
    )


def _document(rate: TriedRate) -> dict[str, Json]:
    return {
        "factor": round(rate.factor, 6),
        "offered": [{"unit": unit.value, "rate": round(each, 3)} for unit, each in rate.offered],
        "kept": rate.tally.kept,
        "runs": rate.tally.runs,
        "is_sure": rate.tally.is_sure,
        "figures": [list(trial.figures) for trial in rate.trials],
        "evidence": [trial.evidence for trial in rate.trials],
    }


def _kept(rate: TriedRate) -> str:
    return f"{rate.tally.kept} of {rate.tally.runs}"


def _figures(rate: TriedRate, found: FoundRate) -> str:
    """Return the lowest and the highest figure of all runs and clients at a rate."""
    figures = [figure for trial in rate.trials for figure in trial.figures]
    unit = rate.offered[0][0] if rate.offered else RateUnit.BYTES
    low, high = (found.target.metric.text(each, unit) for each in (min(figures), max(figures)))
    return low if low == high else f"{low} to {high}"
