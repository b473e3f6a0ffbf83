"""An S3 gateway on this machine: versitygw over a folder, built by Go into `.cache/` once."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deltalake.fs import DeltaStorageHandler
from tests.support.brokers.java_process import free_port
from tests.support.brokers.maven import CACHE, MissingServerError, exclusive
from tests.support.pipeline.spark_servers import listens
from tests.support.processes.awaiting import await_true

_VERSION = "1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@v{_VERSION}"
_BUILD_TIMEOUT_S = 540
BUCKET = "traffic"


def gateway_program() -> Path:
    """The program, built at the first call.

    Raises `MissingServerError` where Go is missing or the module can't be fetched.
    """
    program = CACHE / f"versitygw-{_VERSION}" / "versitygw"
    CACHE.mkdir(exist_ok=True)
    with exclusive(CACHE / f"versitygw-{_VERSION}.lock"):
        if not program.is_file():
            _build(program)
    return program


def _build(program: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise MissingServerError("Go is not installed, it builds the S3 gateway")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        variables = {**os.environ, "GOBIN": scratch, "CGO_ENABLED": "0"}
        result = subprocess.run(
            [go, "install", _MODULE],
            env=variables,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
        if result.returncode != 0:
            raise MissingServerError(f"Go could not build the S3 gateway:\n{result.stderr}")
        program.parent.mkdir(exist_ok=True)
        (Path(scratch) / program.name).rename(program)


@contextmanager
def s3_gateway(folder: Path) -> Iterator[dict[str, str]]:
    """The variables by which the tools of the cloud find the gateway, which has the bucket `BUCKET`."""
    program, port = gateway_program(), free_port()
    (folder / "buckets" / BUCKET).mkdir(parents=True)
    command = [str(program), "--access", "tester", "--secret", "s3cret-s3cret", "--port", f"127.0.0.1:{port}"]
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen([*command, "posix", str(folder / "buckets")], stdout=log, stderr=log)
    try:
        await_true(lambda: listens(port) or process.poll() is not None, "the S3 gateway listens", timeout_s=60)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "s3cret-s3cret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        process.kill()
        process.wait()


def upload(variables: Mapping[str, str], file: Path, name: str) -> None:
    """Write a file to the bucket."""
    bucket = DeltaStorageHandler(f"s3://{BUCKET}", options=dict(variables))
    target = bucket._handler.open_output_stream(name, None)  # Arrow hands it buffers, which it refuses
    target.write(file.read_bytes())
    target.close()
