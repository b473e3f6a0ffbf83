"""Commands and options that were removed, each with what to use instead."""

import re
from typing import Any, Final

_SCENARIO: Final = "{}, in a scenario file for: kafka-quotas load-test run FILE"
_OF_CLIENT: Final = "{} of a client, in a scenario file for: kafka-quotas load-test run FILE"
_RUN: Final = "load-test run FILE {}, with the load in a scenario file"
_ANY: Final = "--entity-type users, clients or ips, without a name; nothing named is everything"
_WATCHED: Final = (
    "leave it out, and filter what is printed: each change has its whole entity, with --output json by types"
)
_LOGIN: Final = "{} context:NAME, after: kafka-quotas context set NAME --store URL --command-config FILE"
_THROTTLE: Final = (
    "leave it out: a response has the longer delay of this and its request quota, less what it has waited"
)
_PER_SECOND: Final = "--quota per second: 5 for 300 a minute"
_WINDOW: Final = "--quota-window-num and --quota-window-size-seconds, or window: in a scenario file"
_CONFIG: Final = "name the file in KAFKA_QUOTAS_COMMAND_CONFIG, or in a context of the cluster"
_PLOT: Final = "--out DIR, and then: kafka-quotas load-test report DIR --plot FILE"
_TYPED_LOADS: Final = {
    "--connections": _OF_CLIENT.format("connections: 4"),
    "--unauthorised": _OF_CLIENT.format("request: {api: Fetch, unauthorised: true}"),
    "--batch": _OF_CLIENT.format("batch: 16KiB"),
    "--brokers": _RUN.format("--brokers N"),
    "--command-config": _CONFIG,
    "--journal-dir": _RUN.format("--journal-dir DIR"),
    "--junit": _RUN.format("--junit FILE"),
    "--plot": _PLOT,
    "--prometheus": _RUN.format("--prometheus URL"),
    "--repeat": _RUN.format("--repeat N"),
    "--shard": _RUN.format("--shard 2/4"),
    "--start-at": _RUN.format("--start-at TIME"),
    "--window-file": _WINDOW,
}
"""Options that `load-test run` or its scenario files have, and single loads had."""
_SET: Final = "kafka-quotas alter --user NAME --add-config KEY=VALUE"
_GET: Final = "kafka-quotas describe --user NAME, or describe alone for all that is stored"
_DELETE: Final = "kafka-quotas alter --user NAME --delete-config KEY"
_OF_OTHER_TOOLS: Final = {"set": _SET, "add": _SET, "get": _GET, "list": _GET, "delete": _DELETE, "remove": _DELETE}
"""The usual verbs of other tools, which are near to none of ours."""
REMOVED: Final = {
    **{f"kafka-quotas {verb}": hint for verb, hint in _OF_OTHER_TOOLS.items()},
    **dict.fromkeys(map("kafka-quotas describe --{}-any".format, ("user", "client", "ip")), _ANY),
    "kafka-quotas describe --all": "leave it out: without a client --effective is about all that the store implies",
    "kafka-quotas describe --strict": "kafka-quotas kafka-configs --describe is strict; --output json has the types of "
    "each entity",
    **dict.fromkeys(map("kafka-quotas watch --{}".format, ("user-any", "client-any", "ip-any", "strict")), _WATCHED),
    "kafka-quotas describe --metric-names": "kafka-quotas why and kafka-quotas top take it",
    "kafka-quotas watch --count": "--limit N",
    "--from-command-config": _LOGIN.format("--from"),
    "--to-command-config": _LOGIN.format("--to"),
    "kafka-quotas context show --bootstrap-server": "--store kafka://HOST:PORT",
    "kafka-quotas context show --zookeeper": "--store zk://HOST:PORT/CHROOT",
    "kafka-quotas context show --command-config": "leave it out: where it is given, no other file is read",
    "kafka-quotas context show --origin": "leave it out: where a setting comes from is always shown",
    "--password-variable": "--password-command 'printenv VARIABLE'",
    "--install-kafka-configs": 'ln -s "$(command -v kafka-quotas)" DIR/kafka-configs',
    "--window-file": f"{_WINDOW.partition(',')[0]}, or with --controller- in front, with the figures of the file",
    "--max-burst": "--controller-quota-window-num N / (quota x size): 100 for 500 at 5/s",
    "kafka-quotas throttle mutation --unit": _PER_SECOND,
    "kafka-quotas throttle compare --unit": _PER_SECOND,
    "--request-throttle": _THROTTLE,
    "--waited": _THROTTLE,
    "kafka-quotas throttle simulate --op": "the column op of the events",
    "kafka-quotas throttle simulate --summary": "leave it out: the totals come after the decisions, and --output json "
    "has them as summary",
    **dict.fromkeys(
        map("kafka-quotas daemon {} --limit".format, ("decide", "reload")), "leave it out: there is one row"
    ),
    "kafka-quotas load-test merge --plot": _PLOT,
    "kafka-quotas load-test report --png": "--plot FILE",
    "--ui-listen": "--listen [HOST:]PORT",
    "kafka-quotas load-test mutate --topics-per-request": _OF_CLIENT.format("mutation: {topics: 10, ...}"),
    "kafka-quotas pipeline demo --sample": "leave it out for the example request-log; kafka-quotas pipeline ingest "
    "takes any other",
    "--spark-log": "leave it out: a failure names the log, which is below XDG_STATE_HOME",
    "kafka-quotas pipeline replay --steps": "--sweep KEY=A,B,C, which names each value",
    "kafka-quotas pipeline report --title": "leave it out: every page has the same title",
    "--broker-windows": "leave it out: the brokers of --bootstrap-server are always asked for their windows",
    "--clients-share": "--overrides N is the number of clients with a limit of their own",
    "--driver-memory": "--spark-conf spark.driver.memory=4g",
    "--exempt": "alter --user NAME --add-config KEY=unlimited, for each key as in the how-to page on rollout",
    "--jars": "--spark-conf spark.jars=FILE,FILE",
    "--packages": "--spark-conf spark.jars.packages=COORDINATES,COORDINATES",
    "kafka-quotas daemon upgrade": "restart the daemon, with --state-file; members of a --fleet one by one",
    "kafka-quotas --alter": "kafka-quotas alter, or kafka-quotas kafka-configs with your options as they are",
    "kafka-quotas --describe": "kafka-quotas describe, or kafka-quotas kafka-configs with your options as they are",
    "--find-rate": "run a scenario with stages, and read in its report from which rate on latencies grow",
    "--find-within": "run a scenario with stages, and read in its report from which rate on latencies grow",
    "--otlp": "load-test run --prometheus reads the brokers' metrics, and --out keeps samples.parquet",
    "--abort-on": _SCENARIO.format("abort-on: ['response.p99 < 500ms']"),
    "--control-factor": _SCENARIO.format("control-factor: 5"),
    "--acks": _OF_CLIENT.format("acks: 1"),
    "--api-timeout": _OF_CLIENT.format("mutation: {kind: create, api-timeout: 30s}"),
    "--arrival": _OF_CLIENT.format("arrival: poisson"),
    "--burst-size": _OF_CLIENT.format("arrival: burst and burst: 20"),
    "--compression": _OF_CLIENT.format("compression: gzip"),
    "--honor-throttle": _OF_CLIENT.format("client: raw and honor-throttle: false"),
    "--in-flight": _OF_CLIENT.format("in-flight: 1"),
    "--loop": _OF_CLIENT.format("loop: closed"),
    "--max-wait-ms": _OF_CLIENT.format("request: {api: Fetch, max-wait: 500ms}"),
    "--min-bytes": _OF_CLIENT.format("request: {api: Fetch, min-bytes: 1000}"),
    "--no-retry-quota-violation": _OF_CLIENT.format("mutation: {kind: create, retry-quota-violation: false}"),
    "--stage": _OF_CLIENT.format("stages: [{duration: 30s, target: 5MB/s}]"),
    "--validate-only": _OF_CLIENT.format("mutation: {kind: create, validate-only: true}"),
    "--mutation-algorithm": "leave it out: the daemon measures as Kafka does; see throttle mutation for the others",
    "kafka-quotas daemon config": "kafka-quotas daemon check shows what is in force and where it came from",
    "kafka-quotas load-test mutate --replication-factor": _OF_CLIENT.format("mutation: {replication-factor: 3, ...}"),
    "kafka-quotas load-test requests --record-size": _OF_CLIENT.format("record-size: 1KiB"),
    "kafka-quotas load-test run --window-file": _WINDOW,
    **{
        f"kafka-quotas throttle {command} --command-config": _CONFIG
        for command in ("rate", "request", "mutation", "compare", "simulate")
    },
    **{
        f"kafka-quotas load-test {load} {option}": hint
        for load in ("produce", "consume", "requests", "mutate", "connect")
        for option, hint in _TYPED_LOADS.items()
    },
    "kafka-quotas pipeline demo --jars": "--broker-jars DIR, as in load-test",
    "kafka-quotas pipeline ingest --form": "--format, as in other commands",
    "kafka-quotas pipeline compact": "the tables are Delta: OPTIMIZE and VACUUM of Spark or deltalake, as "
    "docs/reference/pipeline.md shows",
    "kafka-quotas pipeline convert": "read the logs again: kafka-quotas pipeline ingest",
    "kafka-quotas pipeline history": "the table ingests of the data folder has the changes, for any reader of Delta",
}
"""The hints by option, by command with option, or by command, as in `kafka-quotas daemon upgrade`."""


def hint_for_removed(error: Any, command_path: str) -> str | None:
    """Return the hint for a removed option or command that an error of Typer names, None for others."""
    option = getattr(error, "option_name", None)
    if option is not None:
        return REMOVED.get(f"{command_path} {option}") or REMOVED.get(option)
    command = re.match(r"No such command '([^']+)'", error.message)
    return REMOVED.get(f"{command_path} {command[1]}") if command else None
