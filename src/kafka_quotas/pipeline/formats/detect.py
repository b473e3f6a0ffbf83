"""The formats of files, and their detection."""

import re
from enum import StrEnum
from typing import Final

from kafka_quotas.pipeline.formats.timestamp import has_offset

REQUEST_MARK: Final = b"Completed request:"
"""The text before the JSON in every line of a request log."""
SNIFFED_BYTES: Final = 64 * 1024
"""First bytes of a file that decide its format."""


class InputFormat(StrEnum):
    """The format of a file.

    The first three are read line by line and may grow, the others are whole documents.
    """

    REQUEST_LOG = "request-log"
    DAEMON_EVENTS = "daemon-events"
    LIBRDKAFKA_STATS = "librdkafka-stats"
    PROMETHEUS = "prometheus"
    JSON_METRICS = "json-metrics"
    JAVA_CLIENT = "java-client"
    LOAD_TEST = "load-test"

    @property
    def grows(self) -> bool:
        """Whether writers append lines to such a file, and lines once read need not be read again."""
        return self in (InputFormat.REQUEST_LOG, InputFormat.DAEMON_EVENTS, InputFormat.LIBRDKAFKA_STATS)


_SIGNS: Final = (
    (InputFormat.LOAD_TEST, re.compile(rb'\APAR1|\A\s*\{\s*"schema":\s*"kafka-quotas\.load-test/')),
    (InputFormat.REQUEST_LOG, re.compile(re.escape(REQUEST_MARK))),
    (InputFormat.DAEMON_EVENTS, re.compile(rb'^\s*\{"v":', re.MULTILINE)),
    (InputFormat.LIBRDKAFKA_STATS, re.compile(rb'^\s*\{.*"client_id".*"brokers"\s*:', re.MULTILINE)),
    (InputFormat.JAVA_CLIENT, re.compile(rb"^[\w-]+-metrics:[\w.-]+:\{.*\}\s*:", re.MULTILINE)),
    (InputFormat.JSON_METRICS, re.compile(rb"\A\s*(?:\{\s*\"|\[\s*\{)")),
    (
        InputFormat.PROMETHEUS,
        re.compile(rb"^(# (HELP|TYPE) \w|[a-zA-Z_:][\w:]*(\{.*\})?\s+([-+]?[\d.]|NaN|[-+]?Inf))", re.MULTILINE),
    ),
)


def detect_format(head: bytes) -> InputFormat | None:
    """Detect the format of a file by its first bytes, None for an unknown one."""
    return next((form for form, sign in _SIGNS if sign.search(head)), None)


def needs_zone(head: bytes) -> bool:
    """Check whether the timestamps in a request log lack the zone, by its first bytes."""
    return next((not has for has in map(has_offset, head.splitlines()) if has is not None), False)
