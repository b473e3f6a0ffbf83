"""`kafka-quotas load-test`: its commands, their options, and how results are shown."""

from kafka_quotas.cli.framework.commands import LazyGroup

app = LazyGroup(
    "Put load on a cluster and judge whether the quotas hold.\n\nThe verdict is the exit code: 0 when every client got "
    "what its quota promises, 1 when not.",
    {
        "run": ("load_test.scenarios:run", "Run a scenario from its file or name."),
        "produce": ("load_test.typed:produce", "Produce records and judge the rate that was achieved."),
        "consume": ("load_test.typed:consume", "Consume records and judge the rate that was achieved."),
        "requests": ("load_test.typed:requests", "Flood a cluster with requests of a kind."),
        "mutate": ("load_test.typed:mutate", "Flood a cluster with changes of topics."),
        "connect": ("load_test.typed:connect", "Storm a cluster with connections."),
        "list": ("load_test.scenarios:list_", "List the scenarios that are shipped."),
        "init": ("load_test.scenarios:init", "Write a commented scenario for a question, to run and to change."),
        "validate": ("load_test.scenarios:validate", "Check whether a scenario can be run here, without running it."),
        "report": ("load_test.kept_runs:report", "Draw a kept run's report again, and print its verdict."),
        "compare": (
            "load_test.kept_runs:compare",
            "Compare two runs, and judge whether the second is worse than the first.",
        ),
        "merge": ("load_test.kept_runs:merge", "Join the shards of a load test to one run, with its verdict."),
        "restore": ("load_test.kept_runs:restore", "Put back what a run that was killed left behind."),
    },
)
