"""`load-test run`: a scenario from its first topic to its last verdict."""

import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from kafka_quotas import loadtest
from kafka_quotas.commands.load_test.cleanup import Cleanup, SignalGuard, interruptible, run_folder
from kafka_quotas.commands.load_test.comparison import ExperimentResult, check_effect, run_experiment, running_text
from kafka_quotas.commands.load_test.events import DaemonRestarts, QuotaSteps
from kafka_quotas.commands.load_test.request import (
    RunRequest,
    ScenarioResult,
    VariantResult,
    ready_scenario,
    run_length,
)
from kafka_quotas.commands.load_test.target import (
    EVENT_LOG,
    TestBed,
    floods_topics,
    running_environment,
    running_test_bed,
)
from kafka_quotas.commands.testbed.kafka_broker import kafka_classes, known_jars
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.model.value_format import format_count

_PROBE_GRACE_S: Final = 60.0
_SHARDS_READY_S: Final = 2.0  # before the start the first shard has set the quotas, and the others read them
_SHARDS_END_S: Final = 5.0  # for which quotas stay after the load, as clocks differ


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObserver:
    """Callbacks for the course of a run."""

    warn: Callable[[str], None]
    step: Callable[[str], None]
    watcher: loadtest.Watcher | None = None


def run_scenario(request: RunRequest, *, clock: Clock, observer: RunObserver) -> ScenarioResult:
    """Run a scenario, and restore quotas and remove topics however it ends."""
    scenario, scale = ready_scenario(request)
    loadtest.raise_open_files()
    with interruptible(lambda: observer.warn("already ending; what was changed is put back first")) as signals:
        run = _ScenarioRun(request, scenario, clock=clock, observer=observer, signals=signals)
        runs = run.whole()
    interrupted = any(run.result.interrupted for run in runs)
    return ScenarioResult(
        scenario=scenario, scale=scale, runs=runs, interrupted=interrupted, leftovers=tuple(run.cleanup.leftovers)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The measurements of one variant, and the evidence on it that is there as soon as its load ends."""

    plan: loadtest.LoadPlan
    result: loadtest.LoadResult
    evidence: loadtest.Evidence
    marks: loadtest.TopicMarks
    ended_early: bool
    """Whether a signal or a broken threshold ended the load before its time."""


class _ScenarioRun:
    _bed: TestBed
    _journal: loadtest.RunJournal

    def __init__(
        self,
        request: RunRequest,
        scenario: loadtest.Scenario,
        *,
        clock: Clock,
        observer: RunObserver,
        signals: SignalGuard,
    ) -> None:
        self._request = request
        self._terms = request.terms
        self._scenario = scenario
        self._expected = (*scenario.expect, *scenario.abort_on)
        self._wanted = [each.entry for each in scenario.quotas]
        self._clock = clock
        self._observer = observer
        self._run_id = secrets.randbits(64)
        is_bare = request.is_typed and not request.target.is_theirs
        self._prefix = "" if is_bare else f"kafka-quotas-{scenario.name}-{self._run_id:016x}-"
        self._signals = signals
        self._before_s = self._whole_s = 0.0
        self.cleanup = Cleanup(signals=signals, report=observer.warn)

    def whole(self) -> tuple[VariantResult, ...]:
        """Run the variants in order, up to one that ends early, and return their results."""
        runs: dict[loadtest.Variant, _Measured] = {}
        with self._test_bed():
            plan: loadtest.LoadPlan | None = None
            for variant in self._scenario.variants:
                if plan is not None and floods_topics(plan):
                    self._observer.step("removing the topics of the flood")
                    with self._signals.deferred():
                        self._bed.make_flood_topics(plan)
                measured = self._under_quotas(variant, plan)
                plan = measured.plan
                runs[variant] = self._with_traces(measured, variant)
                if measured.ended_early:
                    break
            compared = self._compared(runs)
        return tuple(self._judged(variant, measured, compared) for variant, measured in runs.items())

    def _with_traces(self, measured: _Measured, variant: loadtest.Variant) -> _Measured:
        """Add what topics and event logs show, once quotas are restored: reading back would use them."""
        plan, result, evidence = measured.plan, measured.result, measured.evidence
        if self._request.checks_delivery and not result.interrupted:
            direct = replace(plan, bootstrap=self._bed.bootstrap)
            deliveries = loadtest.read_back(direct, result.entities, measured.marks, step=self._observer.warn)
            evidence = replace(evidence, deliveries=deliveries)
        log, ended_ms = self._bed.folder / variant.value / EVENT_LOG, result.started_ms + round(result.elapsed_s * 1000)
        charges = loadtest.logged_charges(log, plan.entities, started_ms=result.started_ms, ended_ms=ended_ms)
        return replace(measured, evidence=replace(evidence, charges=charges))

    def _judged(self, variant: loadtest.Variant, measured: _Measured, compared: ExperimentResult) -> VariantResult:
        """Judge a variant by its evidence, and by the comparison with the load without quotas."""
        evidence, title, shard = measured.evidence, self._scenario.name, None
        if variant is loadtest.Variant.WITH_QUOTAS:
            evidence = replace(evidence, effects=compared.effects, without_quotas=compared.without_quotas)
        else:
            title += f", {variant.value}"
        interrupted = measured.result.interrupted or compared.is_interrupted
        with kafka_classes(known_jars(self._request.target.broker_jars, os.environ)) as judge:
            result = replace(measured.result, title=title, interrupted=interrupted)
            result = loadtest.judge_run(result, replace(evidence, throttle_judge=judge))
        if self._terms.share != loadtest.WHOLE:
            shard = loadtest.Shard(plan=measured.plan, result=result, expectations=self._expected)
        return VariantResult(variant=variant, result=result, shard=shard)

    @contextmanager
    def _test_bed(self) -> Iterator[None]:
        with ExitStack() as stack:
            header = self._request.journal_header(self._run_id, started_ms=self._clock.now_ms())
            self._journal = stack.enter_context(loadtest.open_journal(self._request.journal_folder, header))
            folder = stack.enter_context(run_folder(self._journal))
            self._bed = stack.enter_context(running_test_bed(self._request.target, self._scenario, folder))
            if self._request.target.is_theirs and (self._scenario.makes_topics or self._scenario.mutates):
                stack.enter_context(self.cleanup.topics(self._journal, self._bed.topics, self._prefix))
            with self._signals.deferred():  # a topic that is being created would escape its deletion
                self._bed.make(self._scenario.topics, prefix=self._prefix)
            self._bed.fill(self._scenario.topics, prefix=self._prefix)
            yield

    def _compared(self, runs: Mapping[loadtest.Variant, _Measured]) -> ExperimentResult:
        limited, free = (runs.get(each) for each in (loadtest.Variant.WITH_QUOTAS, loadtest.Variant.WITHOUT_QUOTAS))
        takes_away = self._scenario.quotas or self._scenario.daemon.policy
        if limited is None or not takes_away or any(each.ended_early for each in runs.values()):
            return ExperimentResult()
        if free is not None:  # the scenario has the run that it is compared with
            return ExperimentResult(without_quotas=free.result)
        if floods_topics(limited.plan):
            return ExperimentResult()
        return run_experiment(
            limited.plan,
            self._scenario,
            opened=self._environment,
            run=lambda block: self._run_load(block, watcher=self._watch),
            step=self._observer.step,
            time_s=self._request.experiment_time_s,
        )

    def _under_quotas(self, variant: loadtest.Variant, before: loadtest.LoadPlan | None) -> _Measured:
        is_limited, is_first = variant is loadtest.Variant.WITH_QUOTAS, self._terms.share.number == 1
        if is_limited and self._wanted and is_first:
            with closing(self._bed.store()) as store:
                names = loadtest.client_names(self._scenario)
                check_effect(store, self._wanted, names, warn=self._observer.warn)
            self._observer.step(f"setting {format_count(len(self._wanted), 'quota')}")
        steps = QuotaSteps(
            self._scenario.quota_steps if is_limited and self._scenario.quotas else (),
            warmup_s=self._scenario.unjudged_s,
            changed=lambda wanted: self.cleanup.quotas(self._journal, self._bed.store, wanted),
        )
        with self._environment(variant, variant.value) as environment, steps:
            measured = self._measured(variant, environment, before, steps)
            others_go_on = is_limited and is_first and self._terms.share != loadtest.WHOLE
            if self._scenario.quotas and others_go_on and not measured.ended_early:
                self._signals.pause(_SHARDS_END_S)
            return measured

    @contextmanager
    def _environment(self, variant: loadtest.Variant, name: str) -> Iterator[loadtest.Environment]:
        is_limited = variant is loadtest.Variant.WITH_QUOTAS
        with ExitStack() as stack:
            if is_limited and self._scenario.quotas and self._terms.share.number == 1:  # it sets them for all shards
                stack.enter_context(self.cleanup.quotas(self._journal, self._bed.store, self._wanted))
            environment = running_environment(
                self._request.target, self._bed, self._scenario, prefix=self._prefix, with_policy=is_limited, name=name
            )
            yield replace(stack.enter_context(environment), enforcers=self._terms.brokers)

    def _measured(
        self,
        variant: loadtest.Variant,
        environment: loadtest.Environment,
        before: loadtest.LoadPlan | None,
        steps: QuotaSteps,
    ) -> _Measured:
        scenario, is_limited = self._scenario, variant is loadtest.Variant.WITH_QUOTAS
        names = loadtest.client_names(scenario)
        if self._terms.share.number > 1 and self._terms.start_at_ms is not None:
            self._signals.pause((self._terms.start_at_ms - self._clock.now_ms()) / 1000 - _SHARDS_READY_S)
        in_force = self._in_force(names)
        later = self._in_force(names, steps.steps) if steps.steps else None
        plan = self._planned(in_force, later, environment, before)
        with self._signals.deferred():
            self._bed.make_flood_topics(plan)
        alone = self._solo(plan)
        direct = replace(plan, bootstrap=self._bed.bootstrap)
        marks: dict[tuple[str, int], int] = {}
        abort = loadtest.AbortCheck(scenario.abort_on if is_limited else ())
        self._observer.step(running_text(plan, plan.warmup_s + plan.duration_s, variant))
        with ExitStack() as stack:
            watch = loadtest.QuotaWatch(self._bed.store, names=names, expected=(in_force, later or in_force))
            if self._request.reads_quotas:
                stack.enter_context(watch)
            probes = [stack.enter_context(each) for each in self._probes(variant)]
            restarts = stack.enter_context(
                DaemonRestarts(scenario.daemon.restarts_s, environment.restarts, warmup_s=plan.warmup_s)
            )
            result = self._run_load(
                plan,
                watcher=lambda progress: self._watch(progress, steps.look, restarts.look),
                ready=lambda: marks.update(loadtest.mark_topics(direct) if self._request.checks_delivery else {}),
                abort=abort,
                start_at_ms=self._terms.start_at_ms,
            )
            total_s = result.elapsed_s if abort.broken else plan.warmup_s + plan.duration_s
            for each in probes:
                each.ask_until(0.0 if result.interrupted else total_s)
        result = replace(result, probes=tuple(answer for each in probes for answer in each.answers))
        judged_whole = is_limited and self._terms.share == loadtest.WHOLE
        evidence = loadtest.Evidence(
            solo={} if alone is None else {entity.key: entity.response for entity in alone.entities},
            control_factor=scenario.control_factor,
            time_limited=frozenset(entity.key for entity in plan.entities if entity.is_time_limited),
            expected_errors={load.key: loadtest.expected_errors(scenario, load) for load in plan.entities},
            quotas_changed="; ".join(watch.findings) or None,
            outages=(*(() if alone is None else alone.outages), *self._bed.deleted_topics(plan)),
            expectations=tuple(map(loadtest.parse_expectation, self._expected)) if judged_whole else (),
        )
        ended_early = result.interrupted or abort.broken is not None
        return _Measured(plan=plan, result=result, evidence=evidence, marks=marks, ended_early=ended_early)

    def _planned(
        self,
        in_force: loadtest.InForce,
        later: loadtest.InForce | None,
        environment: loadtest.Environment,
        before: loadtest.LoadPlan | None,
    ) -> loadtest.LoadPlan:
        if before is not None:
            again = replace(before, bootstrap=environment.bootstrap, run_id=before.run_id + 1)
            return loadtest.same_load(again, in_force)
        plan = loadtest.scenario_plan(self._scenario, in_force, environment, run_id=self._run_id, later=later)
        shared = tuple(replace(entity, share=self._terms.share) for entity in plan.entities)
        return self._long_enough(replace(plan, entities=shared))

    def _long_enough(self, plan: loadtest.LoadPlan) -> loadtest.LoadPlan:
        needed_s, given_s = math.ceil(plan.needed_s), self._terms.duration_s
        if given_s is None and plan.duration_s < needed_s:
            self._observer.warn(
                f"{plan.duration_s:g} s are made {needed_s} s: {loadtest.MIN_WINDOWS} windows of "
                f"{plan.window_ms / 1000:g} s show whether a quota holds"
            )
            plan = loadtest.long_enough(plan)
        elif plan.duration_s < needed_s:
            self._observer.warn(f"this is too short to judge every client: needs {needed_s} s, got {given_s:g} s")
        length = run_length(self._scenario, plan, experiment_time_s=self._request.experiment_time_s)
        self._observer.step(f"this takes {length.text}")
        self._whole_s = length.load_s + length.comparison_most_s
        return plan

    def _in_force(
        self, names: Sequence[loadtest.ClientName], steps: Sequence[loadtest.QuotaStep] = ()
    ) -> loadtest.InForce:
        if not self._request.reads_quotas:
            return loadtest.quotas_in_force((), names)
        with closing(self._bed.store()) as store:
            return loadtest.stored_in_force(store, names, [each.entry for each in steps])

    def _solo(self, plan: loadtest.LoadPlan) -> loadtest.LoadResult | None:
        alone = loadtest.solo_plan(plan, duration_s=self._scenario.solo_s)
        if alone is None:
            return None
        labels = ", ".join(entity.name.label for entity in alone.entities)
        self._observer.step(f"running {labels} alone for {alone.warmup_s + alone.duration_s:g} s")
        result = self._run_load(alone, watcher=self._watch)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def _run_load(self, plan: loadtest.LoadPlan, *, watcher: loadtest.Watcher, **options: Any) -> loadtest.LoadResult:
        result = loadtest.run_load(plan, clock=self._clock, watcher=watcher, **options)
        self._before_s += plan.warmup_s + plan.duration_s
        return result

    def _watch(self, progress: loadtest.RunProgress, *looks: Callable[[float], None]) -> None:
        self._signals.check()
        for look in looks:
            look(progress.elapsed_s)
        if self._observer.watcher is not None:
            self._observer.watcher(replace(progress, before_s=self._before_s, whole_s=self._whole_s))

    def _probes(self, variant: loadtest.Variant) -> list[loadtest.TopicProbes]:
        return [
            loadtest.TopicProbes(
                self._bed.topics,
                prefix=f"{self._prefix}probe-{variant.value}-{number}-",
                every_s=probe.every_s,
                grace_s=min(probe.timeout_s, _PROBE_GRACE_S),
            )
            for number, probe in enumerate(self._scenario.probes)
        ]
