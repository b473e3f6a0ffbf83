"""`kafka-quotas pipeline`: one module per job, shared options, and the report's page."""

from kafka_quotas.cli.framework.commands import LazyGroup

app = LazyGroup(
    "Turn recorded traffic into usage, what-ifs and quotas to set.",
    {
        "ingest": ("pipeline.ingest:ingest", "Read logs, metrics and samples into tables."),
        "usage": ("pipeline.usage:usage", "Show who used how much of which quota."),
        "replay": ("pipeline.replay:replay", "Try proposed quotas on recorded traffic."),
        "recommend": ("pipeline.recommend:recommend", "Say which quotas to set, and why."),
        "validate": ("pipeline.validate:validate", "Compare the replay with what brokers did."),
        "report": ("pipeline.report:report", "Write a page with charts that anyone can read."),
        "stream": ("pipeline.stream:stream", "Keep live usage and throttle state from a stream of events."),
        "demo": ("demos.pipeline:demo", "Go from real traffic to quotas that are set, in minutes."),
    },
)
