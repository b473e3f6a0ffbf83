"""Archives of the classes of servers and tools, by which Java starts with a third less work.

A broker that runs writes the archive of its folder of jars (JEP 350) once for all runs, and Java passes over one that
another version of it has written. Without `jcmd` there is none.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 240


@dataclass(slots=True, kw_only=True)
class Recording:
    """How a broker is started and asked for the archive, if it is the one to write it."""

    jars: Path
    jcmd: str | None

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the broker's Java.

        Classes that were verified serve each Java, others only one that verifies none.
        """
        verified = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+BytecodeVerificationRemote")
        return ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+RecordDynamicDumpInfo", *verified) if self.jcmd else ()

    def keep(self, pid: int) -> None:
        """Write the archive from the process of the broker, and let others start with it.

        On a machine too busy to write it in time the next run does so.
        """
        if self.jcmd is None:
            return
        written = _archive(self.jars).with_suffix(".part")
        command = [self.jcmd, str(pid), "VM.cds", "dynamic_dump", str(written)]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
            if written.is_file():
                written.rename(_archive(self.jars))


def archive_options(jars: Path) -> tuple[str, ...]:
    """The options by which Java uses the archive of a folder of jars, none as long as it is not there."""
    archive = _archive(jars)
    return ("-Xlog:disable", f"-XX:SharedArchiveFile={archive}") if archive.is_file() else ()


@contextmanager
def recording(jars: Path) -> Iterator[Recording]:
    """How to start a broker: one of those that start first writes the archive, and the others do without."""
    with jars.with_name(f"{_archive(jars).name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_first = False
        else:
            is_first = not _archive(jars).is_file()
        yield Recording(jars=jars, jcmd=shutil.which("jcmd") if is_first else None)


def _archive(jars: Path) -> Path:
    return jars.with_name(f"{jars.name}.jsa")
