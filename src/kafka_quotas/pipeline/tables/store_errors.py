"""Errors of delta-rs about a store, in one line: the cause, from a tree or the store's XML, and what helps."""

import os
import re
from itertools import takewhile
from types import MappingProxyType
from typing import Final
from xml.sax.saxutils import unescape

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER: Final = re.compile(r"<Code>(.*?)</Code>\s*(?:<Message>(.*?)</Message>)?", re.DOTALL)
_VALUE: Final = re.compile(r"\[?[A-Z]\w* \{ ")
"""A value of Rust's, shown as programmers do, which ends what is meant for users."""
_KEYS: Final = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they allow"
_NEWER: Final = "a newer Delta Lake made the table so; upgrade deltalake here, and Delta Lake for Spark"
_HEAP: Final = "spark.driver.memory takes a size such as 4g, from 512m to what the machine has"
_HINTS: Final = MappingProxyType(
    {
        "URL scheme is not allowed": "AWS_ALLOW_HTTP=true allows http://",
        "NoSuchBucket": "make the bucket, or check its name and AWS_ENDPOINT_URL",
        "169.254.169.254": "no keys were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "SignatureDoesNotMatch": _KEYS,
        "InvalidAccessKeyId": _KEYS,
        "AccessDenied": _KEYS,
        "Status Code: 403": _KEYS,
        "Kernel error: Unsupported": _NEWER,
        "Unsupported table features": _NEWER,
        "All DataNodes failed": "do the DataNodes run, and does this machine reach them?",
        "S3AFileSystem not found": "the jars of hadoop-aws are missing there; a Connect server needs them at its start",
        "No space left on device": "make room, also for Spark's spark.local.dir",
        "No FileSystem for scheme": "Hadoop needs jars for another scheme: --spark-conf spark.jars.packages",
        "Invalid maximum heap size": _HEAP,
        "Could not reserve enough space": _HEAP,
        "INVALID_DRIVER_MEMORY": _HEAP,
        "Connection refused": "nothing was changed; does the store run there?",
    }
)
"""What helps, by words of an error."""

# Read by delta-rs when it is loaded: else lines of Rust's come before the error, or where a replica in HDFS suffices.
os.environ.setdefault("RUST_LOG", "error")


def cause_of(error: Exception) -> str:
    """Return the innermost line of an error that delta-rs shows as a tree, or what the store answered."""
    if isinstance(error, OSError) and error.strerror:
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        return f"{error.strerror}{where}"
    if answer := _ANSWER.search(str(error)):
        code, message = answer.groups()
        return f"{' '.join(unescape(message).split())} ({code})" if message else code
    lines = [line.strip(" ↳") for line in _COLOURS.sub("", str(error)).splitlines()]
    plain = [line for line in takewhile(lambda line: not _VALUE.match(line), lines) if line]
    return plain[-1] if plain else type(error).__name__


def hint_of(text: str) -> str | None:
    """Return what helps against an error with this text, None where nothing is known."""
    return next((hint for words, hint in _HINTS.items() if words in text), None)
