"""The formats of files, and their detection."""

import re
from enum import StrEnum
from typing import Final

from kafka_quotas.pipeline.formats.timestamp import has_offset

REQUEST_MARK: Final = b"Completed request:"
"""The text before the JSON in every line of a request log."""
SNIFFED_BYTES: Final = 64 * 1024
"""First bytes of a file that decide its format."""


class FileForm(StrEnum):
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
        return self in (FileForm.REQUEST_LOG, FileForm.DAEMON_EVENTS, FileForm.LIBRDKAFKA_STATS)


_SIGNS: Final = (
    (FileForm.LOAD_TEST, re.compile(rb'\APAR1|\A\s*\{\s*"schema":\s*"kafka-quotas\.load-test/')),
    (FileForm.REQUEST_LOG, re.compile(re.escape(REQUEST_MARK))),
    (FileForm.DAEMON_EVENTS, re.compile(rb'^\s*\{"v":', re.MULTILINE)),
    (FileForm.LIBRDKAFKA_STATS, re.compile(rb'^\s*\{.*"client_id".*"brokers"\s*:', re.MULTILINE)),
    (FileForm.JAVA_CLIENT, re.compile(rb"^[\w-]+-metrics:[\w.-]+:\{.*\}\s*:", re.MULTILINE)),
    (FileForm.JSON_METRICS, re.compile(rb"\A\s*(?:\{\s*\"|\[\s*\{)")),
    (
        FileForm.PROMETHEUS,
        re.compile(rb"^(# (HELP|TYPE) \w|[a-zA-Z_:][\w:]*(\{.*\})?\s+([-+]?[\d.]|NaN|[-+]?Inf))", re.MULTILINE),
    ),
)


def sniff_form(head: bytes) -> FileForm | None:
    """Detect the format of a file by its first bytes, None for an unknown one."""
    found = next((form for form, sign in _SIGNS if sign.search(head)), None)
    return found or (FileForm.REQUEST_LOG if has_offset(head.lstrip()) is not None else None)


def needs_zone(head: bytes) -> bool:
    """Check whether the time stamps in a request log lack the zone, by its first bytes."""
    stamps = (has_offset(line) for line in head.splitlines())
    return next((not has for has in stamps if has is not None), False)
