"""The installed program, started through the link that it makes on request."""

import subprocess
from pathlib import Path

from tests.support.processes.run_cli import run_cli


def test_the_link_is_the_original_by_name(tmp_path: Path) -> None:
    link = tmp_path / "kafka-configs"
    code, out, _ = run_cli("completion", "--install-kafka-configs", str(tmp_path))
    assert (code, out.split(" -> ")[0]) == (0, str(link))
    done = subprocess.run(
        [link, "--bootstrap-server", "127.0.0.1:1", "--alter", "--user", "a", "-add-config", "x=1"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Only quota and SCRAM credential configs can be added for 'users' using --bootstrap-server. "
        "Unexpected config names: Set(x)\n"
    )
