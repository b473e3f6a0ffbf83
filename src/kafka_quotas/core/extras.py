"""The optional parts of the installation and Java, named where one is missing, and the command that adds them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError, UsageError

_DISTRIBUTIONS = {
    "hcl2": "python-hcl2",
    "jinja2": "Jinja2",
    "prometheus_client": "prometheus-client",
    "puresasl": "pure-sasl",
}
_PROGRAM: Final = "kafka-quotas"
_OF_EXTRA: Final = r"\s*;\s*extra == ['\"]{}['\"]"


def require_extra(extra: str, *modules: str, needed_by: str) -> None:
    """Check that the libraries of an extra can be imported, before the work that needs them begins.

    Args:
        extra: The name of the extra.
        modules: The top-level modules of the libraries.
        needed_by: Who needs them, as the beginning of a sentence: `metrics need`.

    Raises:
        UsageError: One is not installed. The hint has the command that installs what the extra names.
    """
    missing = [_DISTRIBUTIONS.get(module, module) for module in modules if find_spec(module) is None]
    if missing:
        names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise UsageError(f"{needed_by} {names}, not installed here", hint=install_extra(extra, *missing))


def require_linux(what: str) -> None:
    """Check that this is Linux, before something begins that needs it.

    Raises:
        KafkaQuotasError: It is another system.
    """
    if sys.platform != "linux":
        raise KafkaQuotasError(
            f"{what} needs Linux, and this is {sys.platform}",
            hint="run it in a container or a virtual machine; the other commands work here",
        )


def install_extra(extra: str, *names: str) -> str:
    """Return the command that installs the libraries of an extra where this program runs.

    Args:
        extra: The name of the extra.
        names: The libraries to name where this installation does not know the extra.
    """
    try:
        known = requires(_PROGRAM) or []
    except PackageNotFoundError:
        known = []
    found = [re.split(_OF_EXTRA.format(re.escape(extra)), each) for each in known]
    return install_libraries(*([each[0] for each in found if len(each) > 1] or names))


def install_libraries(*requirements: str) -> str:
    """Return the command that installs libraries into the environment that this program runs in.

    It names the libraries, never this program: that may have come from a checkout or a wheel, and an index may have
    none, or a stranger's, under its name.
    """
    wanted = shlex.join(requirements)
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx inject {prefix.name} {wanted}"
    python = shlex.quote(sys.executable)
    has_pip = find_spec("pip") is not None and not (prefix / "uv-receipt.toml").exists()
    return f"{python} -m pip install {wanted}" if has_pip else f"uv pip install --python {python} {wanted}"


OLDEST_JAVA: Final = 17
_JAVA_HINT: Final = (
    f"install Java {OLDEST_JAVA} or 21 (apt install openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME; "
    "--engine local needs none"
)
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
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
        raise KafkaQuotasError(f"Spark needs Java: {where}", hint=_JAVA_HINT)
    version = _java_version(found)
    if version < OLDEST_JAVA:
        raise KafkaQuotasError(f"Spark needs Java {OLDEST_JAVA} or later, {found} is {version}", hint=_JAVA_HINT)
    return Path(found)


def _java_version(java: str) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, asked for its version
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaQuotasError(f"Spark needs Java: {java} does not run: {error}", hint=_JAVA_HINT) from error
    match = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        raise KafkaQuotasError(f"Spark needs Java: {java} -version shows no version", hint=_JAVA_HINT)
    return int(match[1])
