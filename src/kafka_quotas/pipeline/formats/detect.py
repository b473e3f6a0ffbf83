"""The forms that files have, and how one is told from the other."""

import re
from enum import StrEnum
from typing import Final

from kafka_quotas.pipeline.formats.timestamp import has_offset

REQUEST_MARK: Final = b"Completed request:"
"""What the JSON follows in every line of a request log."""
SNIFFED_BYTES: Final = 64 * 1024
"""How much of a file is looked at to tell its form."""


class FileForm(StrEnum):
    """What a file is; the first three are read line by line and may grow, the others are whole documents."""

    REQUEST_LOG = "request-log"
    DAEMON_EVENTS = "daemon-events"
    LIBRDKAFKA_STATS = "librdkafka-stats"
    PROMETHEUS = "prometheus"
    JSON_METRICS = "json-metrics"
    JAVA_CLIENT = "java-client"
    LOAD_TEST = "load-test"

    @property
    def grows(self) -> bool:
        """Whether lines may be added to such a file, so that what was read of it stays read."""
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
    """The form of a file that begins so, None where it looks like none of them."""
    found = next((form for form, sign in _SIGNS if sign.search(head)), None)
    return found or (FileForm.REQUEST_LOG if has_offset(head.lstrip()) is not None else None)


def needs_zone(head: bytes) -> bool:
    """Whether the time stamps in a request log that begins so leave the zone open."""
    stamps = (has_offset(line) for line in head.splitlines())
    return next((not has for has in stamps if has is not None), False)
