"""An S3 gateway on this machine: S3Proxy over a folder, its jars from Maven."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deltalake.fs import DeltaStorageHandler
from tests.support.brokers.java_process import JavaServer, free_port
from tests.support.brokers.maven import S3PROXY, jars
from tests.support.pipeline.spark_servers import listens

BUCKET = "traffic"
_KEY, _SECRET = "tester", "s3cret-s3cret"
_LOGGING = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%m%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="console"/></root>
</configuration>
"""
"""Without it every byte of every request is logged."""


@contextmanager
def s3_gateway(folder: Path) -> Iterator[dict[str, str]]:
    """The variables by which the tools of the cloud find the gateway, which has the bucket `BUCKET`.

    Raises `MissingServerError` where its jars can't be had.
    """
    (folder / "buckets" / BUCKET).mkdir(parents=True)
    address = f"http://127.0.0.1:{(port := free_port())}"
    properties, logging = folder / "s3proxy.properties", folder / "logback.xml"
    properties.write_text(
        f"s3proxy.endpoint={address}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        f"s3proxy.identity={_KEY}\ns3proxy.credential={_SECRET}\n"
        f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={folder / 'buckets'}\n"
    )
    logging.write_text(_LOGGING)
    server = JavaServer(
        "the S3 gateway",
        jars(S3PROXY),
        "org.gaul.s3proxy.Main",
        ["--properties", str(properties)],
        log=folder / "gateway.log",
        options=["-XX:TieredStopAtLevel=1", f"-Dlogback.configurationFile={logging}"],
    )
    try:
        server.wait_ready(lambda: listens(port))
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        server.stop()


def upload(variables: Mapping[str, str], file: Path, name: str) -> None:
    """Write a file to the bucket."""
    bucket = DeltaStorageHandler(f"s3://{BUCKET}", options=dict(variables))
    target = bucket._handler.open_output_stream(name, None)  # Arrow hands it buffers, which it refuses
    target.write(file.read_bytes())
    target.close()
