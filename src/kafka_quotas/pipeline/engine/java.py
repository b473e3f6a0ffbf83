"""The Java for Spark's driver: its path, and whether it is new enough."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError

OLDEST_JAVA: Final = 17
_HINT: Final = (
    f"install Java {OLDEST_JAVA} or 21 (apt install openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME; "
    "--engine local needs none"
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_TIMEOUT_S: Final = 60


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the `java` of JAVA_HOME, else of the PATH, after checking its version.

    Raises:
        KafkaQuotasError: There is none, it does not run, or it is older than Spark 4 needs.
    """
    home = environment.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if found is None or not Path(found).is_file():
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on the PATH"
        raise KafkaQuotasError(f"Spark needs Java: {where}", hint=_HINT)
    version = _version_of(found)
    if version < OLDEST_JAVA:
        raise KafkaQuotasError(f"Spark needs Java {OLDEST_JAVA} or later, {found} is {version}", hint=_HINT)
    return Path(found)


def _version_of(java: str) -> int:
    try:
        told = subprocess.run(  # noqa: S603 - the user's own Java, asked for its version
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaQuotasError(f"Spark needs Java: {java} does not run: {error}", hint=_HINT) from error
    match = _VERSION.search(told.stderr + told.stdout)
    if match is None:
        raise KafkaQuotasError(f"Spark needs Java: {java} -version tells no version", hint=_HINT)
    return int(match[1])
