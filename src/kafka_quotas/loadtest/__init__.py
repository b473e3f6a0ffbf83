"""The load tester: a plan, clients of two libraries, a recorder, and judgements on a run.

`scenarios` has the shipped scenarios as files, in a folder for what their quotas limit. The packages form a line, each
importing the ones before: judgement, plan, measurement, clients and results, verdict, run, scenario.
"""

from typing import TYPE_CHECKING

from kafka_quotas.doors import lazy_names

if TYPE_CHECKING:
    from kafka_quotas.loadtest.clients.raw.floods import FLOOD_APIS, NEEDS_TOPIC
    from kafka_quotas.loadtest.clients.raw.topic_mutator import MutationPlan
    from kafka_quotas.loadtest.judgement import Aspect, Judgement, State
    from kafka_quotas.loadtest.measurement.histogram import LatencyPoint, LatencySummary
    from kafka_quotas.loadtest.plan.client_verdict import ClientVerdict, ObservationKind
    from kafka_quotas.loadtest.plan.document import setting_of
    from kafka_quotas.loadtest.plan.plan import (
        MAX_RECORD_SIZE,
        MIN_WINDOWS,
        WHOLE,
        ClientLoad,
        ClientName,
        EntityKey,
        LoadPlan,
        LoadShare,
        parse_entity_name,
        request_size,
    )
    from kafka_quotas.loadtest.plan.workload import (
        AS_FAST_AS_POSSIBLE,
        UNITS,
        ClientKind,
        MutationFlood,
        MutationKind,
        RequestFlood,
        Workload,
        parse_offered_rate,
    )
    from kafka_quotas.loadtest.results.exports import SAMPLES_FILE, can_write_samples, junit_xml, write_samples
    from kafka_quotas.loadtest.results.prediction import ThrottleJudge, logged_charges
    from kafka_quotas.loadtest.results.result import ClientResult, LoadResult, QuotaEffect
    from kafka_quotas.loadtest.results.run_file import (
        REPEAT,
        RUN_FILE,
        RUN_NOUN,
        RUN_VERSION,
        SHARD_FILE,
        Shard,
        read_run,
        read_runs,
        read_shard,
        run_document,
        write_shard,
    )
    from kafka_quotas.loadtest.run.journal import (
        KEY_OF,
        LOCAL_ADDRESS,
        QUOTAS,
        InForce,
        RevertedQuotas,
        RunHeader,
        RunJournal,
        UnfinishedRun,
        changes_to,
        default_journal_folder,
        journals,
        make_changes,
        open_journal,
        quotas_in_force,
        revert_changes,
        stored_in_force,
        unfinished_run,
    )
    from kafka_quotas.loadtest.run.read_back import TopicMarks, mark_topics, read_back
    from kafka_quotas.loadtest.run.runner import ClientProgress, RunProgress, Watcher, run_load
    from kafka_quotas.loadtest.run.target_watch import PATIENCE_S, QuotaWatch, RunWatch
    from kafka_quotas.loadtest.run.topics import EmbeddedCluster, TopicAdmin, TopicProbes, fill_topic
    from kafka_quotas.loadtest.scenario.model import (
        PREFIX,
        Question,
        QuotaStep,
        Scenario,
        ScenarioClient,
        ScenarioQuota,
        ScenarioTopic,
        Security,
        TargetNeed,
        Variant,
        question_text,
        read_scenario,
        scenario_json_schema,
        shipped_names,
    )
    from kafka_quotas.loadtest.scenario.planning import (
        Credentials,
        Environment,
        at_environment,
        client_names,
        expected_errors,
        long_enough,
        no_credentials,
        own_plan,
        same_load,
        scenario_plan,
        solo_plan,
    )
    from kafka_quotas.loadtest.scenario.preflight import (
        HostLimits,
        Mismatch,
        TargetCapabilities,
        host_limits,
        largest_scale,
        partitions_needed,
        preflight,
        raise_open_files,
        scaled,
    )
    from kafka_quotas.loadtest.verdict.analysis import merge_shards
    from kafka_quotas.loadtest.verdict.comparison import (
        ComparisonOutcome,
        Difference,
        Limits,
        RunComparison,
        compare,
        state_of,
    )
    from kafka_quotas.loadtest.verdict.judging import (
        LEAST_PAIRS,
        Evidence,
        allowed_us,
        alternating,
        judge_run,
        quota_effect,
    )
    from kafka_quotas.loadtest.verdict.thresholds import AbortCheck, check_entities, parse_expectation

__getattr__, __dir__ = lazy_names(__name__)
