"""Traffic for the pipeline's demo: a load test against a real broker that logs its requests."""

import secrets
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_quotas import loadtest
from kafka_quotas.commands.quotas.alter import alter
from kafka_quotas.commands.testbed.daemon_process import work_folder
from kafka_quotas.commands.testbed.kafka_broker import BROKER_ID, REQUEST_LOG, RunningBroker, kafka_jars, running_broker
from kafka_quotas.core.clock import Clock
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quota_files.writer import FileFormat, file_text
from kafka_quotas.stores import QuotaEntry, StoreSettings, open_store
from kafka_quotas.wire import NewTopic

SCENARIO: Final = "everyday"
"""The shipped scenario of the demo, as in `kafka-quotas load-test run everyday`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The request logs of the demo, and the quotas and the quota window during their recording."""

    logs: Path
    in_force: Path
    window: QuotaWindow
    has_spark: bool = True
    default_of: str = "client-id"
    tight: str = "500k"
    """A default for bytes/s written, as quota files have it, that some clients exceed."""
    generous: str = "1M"
    """One that few do."""


def record_traffic(
    scenario: loadtest.Scenario, *, java: Path, jars: Path, out: Path, clock: Clock, watcher: loadtest.Watcher | None
) -> tuple[Recording, loadtest.LoadResult]:
    """Record the request log of a real broker under a scenario's load and quotas.

    The broker is stopped afterwards. Errors of `run_load` pass through.
    """
    libraries = kafka_jars(jars.absolute())
    with work_folder() as folder:
        with running_broker(java=java, jars=libraries, folder=folder, window=scenario.window) as broker:
            _make_topics(scenario, broker)
            plan = _plan(scenario, broker)
            prepared = broker.request_log.stat().st_size  # making and filling topics is no traffic
            result = loadtest.run_load(plan, clock=clock, watcher=watcher)
        logs = out / "logs"
        target = logs / str(BROKER_ID) / REQUEST_LOG
        target.parent.mkdir(parents=True, exist_ok=True)
        with broker.request_log.open("rb") as source, target.open("wb") as copy:
            source.seek(prepared)
            source.readline()  # it may be the rest of a line
            shutil.copyfileobj(source, copy)
    in_force = out / "in-force.yaml"
    quotas = [(each.entity, dict(each.values)) for each in scenario.quotas]
    in_force.write_text("".join(file_text(quotas, FileFormat.YAML)), encoding="utf-8")
    return Recording(logs=logs, in_force=in_force, window=scenario.window), result


def _make_topics(scenario: loadtest.Scenario, broker: RunningBroker) -> None:
    with closing(loadtest.TopicAdmin(broker.bootstrap, settings=StoreSettings())) as admin:
        admin.make([NewTopic(each.name, each.partitions, each.replication_factor) for each in scenario.topics])
    for each in scenario.topics:
        loadtest.fill_topic(
            broker.bootstrap,
            each.name,
            partitions=each.partitions,
            records=each.fill,
            record_size=each.record_size,
            properties={},
        )


def _plan(scenario: loadtest.Scenario, broker: RunningBroker) -> loadtest.LoadPlan:
    quotas = [QuotaEntry(entity=each.entity, quotas=dict(each.values)) for each in scenario.quotas]
    with closing(open_store(f"kafka://{broker.bootstrap}")) as store:
        for each in quotas:
            alter(store, entity=each.entity, changes=dict(each.quotas))
    in_force = loadtest.quotas_in_force(quotas, loadtest.client_names(scenario))
    return loadtest.scenario_plan(
        scenario, in_force, loadtest.Environment(bootstrap=broker.bootstrap, prefix=""), run_id=secrets.randbits(64)
    )
