"""The command lines that pages and examples show, and which of them no test runs as they are.

`console` blocks are no part of it: `generators.console` runs them. Nor is the reference of the commands, whose blocks
are the examples.
"""

import re
from functools import cache
from pathlib import Path

from kafka_quotas.cli.framework.help_page import all_examples
from kafka_quotas.cli.main import PROGRAM

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_TAGS = ("sh", "text", "")
_SERVERS = ("broker-1", "broker:9092", "kafka1:", "localhost:9092", "--context")
_REFERENCE = "reference/commands"

NOT_RUN_HERE = {
    r"(pipx|uv tool|pip) install|python -m (pip|build)": "test_installed_command.py builds the wheel and installs it",
    r"docker ": "needs a container engine; test_container_image.py builds the Dockerfile and starts what it makes",
    r"kubectl ": "needs a cluster of Kubernetes; test_examples_deployment.py checks the manifests",
    r"make (quick|test|check|docs|site)\b": "the checks of this repository, of which this test is one",
    r"export AWS_|venv-pack|spark=|.* \$spark$": "test_object_store.py and test_engines.py: a bucket, a Spark cluster",
    r"start=|for n in|ssh host-|done; wait|.* merge ": "several machines; test_shards.py runs and joins two shards",
    r"\* \* \* \* \* ": "a line of a crontab, whose command is an example as well",
    r"eval ": "a setting of an interactive shell; test_live_completion.py asks a shell",
    r".*zk://": "test_migrate_stores.py moves quotas between such servers",
    r".*--broker-jars ": "starts a broker of its own; test_servers.py and test_embedded_cluster.py do",
    r".*login\.properties": "test_kafka_configs_logins.py, test_kerberos.py, test_logins.py log in",
    r"apt install ": "Debian's packages, which the checks of this repository install as well",
    r".*--passwords ": "test_clients.py logs clients in",
    rf"{PROGRAM} load-test run (?!scenario|mine.yaml --boot)": "takes a minute: test_tutorial.py, test_scenarios.py",
    rf"{PROGRAM} load-test (report|compare) ": "asks about kept runs; test_options.py does",
    rf"{PROGRAM} (pipeline )?demo": "takes half a minute; test_demo.py and test_real_traffic.py",
    rf"{PROGRAM} pipeline stream ": "never ends; test_stream_kafka.py follows a broker",
    r".*/var/lib/kafka-quotas/events": "wants a recording; test_job.py has one",
    rf"{PROGRAM} daemon calibrate ": "takes a minute; test_calibrate.py measures in fewer rounds",
    rf"{PROGRAM} help daemon run": "prints what --help prints; test_help_topics.py",
}
"""What lines begin with or hold, as regular expressions, and where else they are run, or why they can't be."""


@cache
def page_lines() -> tuple[tuple[str, str], ...]:
    """(page, command line) of each command that a page shows in a block without its output."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(
        (str(page.relative_to(ROOT)), line)
        for page in pages
        if _REFERENCE not in page.as_posix()
        for tag, block in _BLOCK.findall(page.read_text(encoding="utf-8"))
        if tag in _TAGS
        for line in _commands(tag, block)
    )


@cache
def example_lines() -> tuple[tuple[str, str], ...]:
    """(path of a command, command line) of each example."""
    return tuple(
        (path, line) for path, examples in all_examples().items() for each in examples for line in each.commands
    )


def lines_without_servers() -> list[str]:
    """The lines that run on this machine alone, those of examples first: pages take up what examples write."""
    return [line for line in _run_here() if _needs_no_server(line)]


def lines_with_servers() -> list[str]:
    """The lines about a cluster, a daemon or a context."""
    return [line for line in _run_here() if not _needs_no_server(line)]


def _run_here() -> list[str]:
    shown = dict.fromkeys(line for _, line in (*example_lines(), *page_lines()))
    return [line for line in shown if not any(re.match(pattern, line) for pattern in NOT_RUN_HERE)]


def _needs_no_server(line: str) -> bool:
    if line.startswith(f"{PROGRAM} context set prod --bootstrap-server"):
        return True
    words = line.split()
    asks_others = {"daemon", "top", "why", "ui", "exporter", "watch", "context"} & set(words[1:2])
    return not asks_others and not any(text in line for text in _SERVERS)


def _commands(tag: str, block: str) -> list[str]:
    lines = re.sub(r" *\\\n *", " ", block).splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    elif tag != "sh" and f"{PROGRAM} " not in block:
        return []
    return [text for line in lines if (text := re.sub(r" +#.*", "", line).strip())]
