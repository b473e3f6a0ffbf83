"""What `python -m build` makes: an archive of the source with all of it, and from that a wheel that works."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINKS = {"cli", "commands", "enforcement"}
"""The links at the root, which only open folders for a reader."""


def ran(command: list[str], folder: Path) -> str:
    """What a command that has to succeed wrote."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive of the source, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    ran([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], ROOT)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*-py3-none-any.whl")
    return archive, wheel


def test_the_archive_has_every_file_of_the_repository(distributions: tuple[Path, Path]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no repository: this is such an archive itself")
    tracked = {name for name in ran(["git", "ls-files"], ROOT).splitlines() if (ROOT / name).exists()}
    with tarfile.open(distributions[0]) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked - LINKS - kept == set()
    assert not any(name.partition("/")[0] in LINKS for name in kept)


def test_the_wheel_from_the_archive_has_every_module(distributions: tuple[Path, Path]) -> None:
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    with zipfile.ZipFile(distributions[1]) as wheel:
        assert modules - set(wheel.namelist()) == set()


@pytest.mark.parametrize("kind", ["archive", "wheel"])
def test_what_is_installed_from_it_calculates(distributions: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    """Its libraries are those of this environment."""
    source = distributions[kind == "wheel"]
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed"]
    ran([sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path), str(source)], tmp_path)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kafka_quotas.cli.main import main; "
    asked = ["throttle", "rate", "--quota", "5MB/s", "--observed", "6MB/s", "--output", "json"]
    shown = ran(
        [sys.executable, "-P", "-c", f"{program}import kafka_quotas; print(kafka_quotas.__file__); main({asked})"],
        tmp_path,
    )
    assert shown.startswith(str(tmp_path)), shown
    assert '"delay_ms":' in shown, shown
