"""The program without what only Linux has, in a process that takes itself for one on macOS.

It shows that no import and no ordinary command needs such a call; `make mypy` checks the same by macOS' declarations.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

LINUX_ALONE = {
    "select": ("epoll", "EPOLLRDHUP", "POLLRDHUP"),
    "socket": ("TCP_KEEPIDLE", "TCP_INFO", "SO_PEERCRED", "MSG_CMSG_CLOEXEC"),
    "os": ("memfd_create", "MFD_CLOEXEC", "sched_getaffinity", "pidfd_open", "posix_fadvise", "splice", "eventfd"),
}
"""Calls and constants that Python has on Linux and not on macOS, as typeshed declares them."""
SOURCE = ("--source", "kafka-quotas-examples/request-log/{broker_id}/*.gz")
_RUN_EACH = """
import contextlib, importlib, io, json, sys, sysconfig, types
import deltalake, duckdb, numba, pandas, pyarrow  # what they load is of this machine, as is the next
sysconfig.get_config_vars()
lacking, commands = json.load(sys.stdin)
for module, names in lacking.items():
    for name in names:
        if hasattr(importlib.import_module(module), name):
            delattr(importlib.import_module(module), name)
sys.modules["_scproxy"] = types.ModuleType("_scproxy")  # what urllib asks for the proxies of a Mac
sys.modules["_scproxy"]._get_proxy_settings = sys.modules["_scproxy"]._get_proxies = dict
sys.platform = "darwin"
from kafka_quotas.cli.main import main
outcomes = []
for argv in commands:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    outcomes.append((code, out.getvalue(), err.getvalue()))
json.dump(outcomes, sys.stdout)
"""


def outcomes(commands: list[list[str]], folder: Path) -> list[tuple[int, str, str]]:
    """What the command lines ended with, in one process without what only Linux has."""
    kept = {name: os.environ[name] for name in ("PATH", "XDG_CACHE_HOME")}
    environment = {**kept, "HOME": str(folder), "KAFKA_QUOTAS_STORE": f"local:{folder}/quotas.db"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _RUN_EACH],
        input=json.dumps([LINUX_ALONE, commands]),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stdout)]


def test_the_command_line_stores_calculator_and_recommendations_work(tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text("- {entity: {user: alice}, quotas: {producer_byte_rate: 7MB}}\n")
    commands = [
        ["--version"],
        ["--help-json"],  # imports every command
        ["alter", "--user", "alice", "--add-config", "producer_byte_rate=5MB"],
        ["describe", "--effective", "--user", "alice"],
        ["tree"],
        ["doctor"],
        ["diff", "quotas.yaml"],
        ["apply", "quotas.yaml", "--yes"],
        ["export"],
        ["revert", "last", "--yes"],
        ["throttle", "rate", "--quota", "5MB/s", "--observed", "6MB/s"],
        ["load-test", "list"],
        ["examples", "copy", "request-log"],
        ["pipeline", "ingest", *SOURCE, "--timezone", "UTC", "--out", "traffic"],
        ["pipeline", "recommend", "traffic", "--min-recorded", "30s", "--engine", "local"],
    ]
    for argv, (code, _, err) in zip(commands, outcomes(commands, tmp_path), strict=True):
        assert (code, "Error" in err) == (0, False), (argv, err)


def test_what_needs_linux_says_so_at_once(tmp_path: Path) -> None:
    for code, out, err in outcomes([["daemon", "run", "--upstream", "broker-1:9092"], ["demo"]], tmp_path):
        assert (code, out) == (1, "")
        assert err.startswith("error: the daemon")
        assert "needs Linux, and this is darwin\nhint: " in err
    assert list(tmp_path.iterdir()) == []
