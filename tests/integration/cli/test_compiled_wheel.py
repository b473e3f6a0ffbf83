"""The compiled wheel: the same source, whose hot path passes the same tests."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src", "man", "completions", "examples")
CORE_TESTS = (
    "tests/unit/core/metrics",
    "tests/unit/core/quotas",
    "tests/conformance/core/test_functions.py",
    "tests/conformance/core/test_manager.py",
    "tests/conformance/core/test_scenarios.py",
    "tests/conformance/core/test_spread.py",
    "tests/property/test_core_rates.py",
    "tests/property/test_core_would_throttle.py",
)
TESTS = (
    *CORE_TESTS,
    "tests/unit/enforcement/proxy",
    "tests/unit/enforcement/session",
    "tests/unit/enforcement/filters",
    "tests/unit/wire",
    "tests/property/test_session_shortcuts.py",
    "tests/property/test_session_traces.py",
)
_OTHERS = re.compile(r' +"src/kafka_quotas/(wire|enforcement)/.*\n')
_FILE_OF_A_MODULE = "import kafka_quotas.core.metrics.rate as module; print(module.__file__)"
_OPTIMIZED = 'opt_level = "2"'
"""What takes half of the time of a build. Without it the assertions in mypyc's runtime are compiled as well."""
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]


def ran(command: list[str], folder: Path, **environment: str) -> str:
    """What a command that has to succeed wrote."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KAFKA_QUOTAS_"))}
        | environment,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def installed(folder: Path, *, whole: bool) -> Path:
    """The folder of packages into which the compiled wheel was installed, or one of which only `core` is compiled."""
    if shutil.which(COMPILER) is None:
        pytest.skip(f"no C compiler ({COMPILER})")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        pytest.skip("no Python.h (Debian's python3-dev)")
    # The compiler writes its results beside the sources, from where this checkout must not take them.
    project, prefix = folder / "project", folder / "prefix"
    project.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, project / name)
    settings = (project / "pyproject.toml").read_text()
    assert _OPTIMIZED in settings
    settings = settings.replace(_OPTIMIZED, 'opt_level = "0"')
    (project / "pyproject.toml").write_text(settings if whole else _OTHERS.sub("", settings))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(project / "dist")]
    ran(build, project, HATCH_BUILD_HOOK_ENABLE_MYPYC="1")
    (wheel,) = (project / "dist").glob("*.whl")
    options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed", "--disable-pip-version-check"]
    ran([sys.executable, "-m", "pip", "install", *options, "--prefix", str(prefix), str(wheel)], project)
    return Path(sysconfig.get_path("platlib", vars={"platbase": str(prefix)}))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("tests", "whole"),
    [
        pytest.param(CORE_TESTS, False, id="core"),
        pytest.param(TESTS, True, id="all", marks=pytest.mark.long),
    ],
)
def test_the_compiled_hot_path_passes_the_tests_of_the_pure_one(
    tmp_path: Path, tests: tuple[str, ...], whole: bool
) -> None:
    search = os.pathsep.join((str(installed(tmp_path, whole=whole)), str(ROOT)))
    if whole:
        version = ran([sys.executable, "-m", "kafka_quotas", "--version"], ROOT, PYTHONPATH=search)
        assert version.endswith("(compiled)\n")
    file = ran([sys.executable, "-c", _FILE_OF_A_MODULE], ROOT, PYTHONPATH=search)
    assert file.startswith(str(tmp_path))
    assert file.endswith(".so\n")
    ran(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", *tests],
        ROOT,
        PYTHONPATH=search,
    )
