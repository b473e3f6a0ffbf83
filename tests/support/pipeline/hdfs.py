"""HDFS on this machine: a NameNode and a DataNode, their jars from Maven."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.brokers.java_process import QUICK_START, JavaServer, free_port, run_tool
from tests.support.brokers.maven import HDFS, MissingServerError, jars

_SERVERS = "org.apache.hadoop.hdfs.server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hdfs:
    """A file system that is ready."""

    url: str
    conf: Path
    """The folder with its settings, by which Hadoop's tools find it."""

    def upload(self, *places: Path) -> None:
        """Write files, or folders with all that is in them, below `/`."""
        _run("org.apache.hadoop.fs.FsShell", ["-put", *map(str, places), f"{self.url}/"], self.conf)


@contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    """A file system to which everybody may write.

    Raises `MissingServerError` where its jars can't be had.
    """
    found = jars(HDFS)
    port, web_port = free_port(), free_port()
    for each in ("hdfs", "datanode"):  # neither server starts without its pages
        place = folder / "conf" / "webapps" / each / "WEB-INF"
        place.mkdir(parents=True)
        (place / "web.xml").write_text("<web-app/>")
    _write(folder / "conf" / "core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{port}", "hadoop.tmp.dir": folder})
    local = {
        "dfs.namenode.http-address": web_port,
        "dfs.datanode.address": 0,
        "dfs.datanode.http.address": 0,
        "dfs.datanode.ipc.address": 0,
    }
    settings = {"dfs.replication": 1, "dfs.permissions.enabled": "false", "dfs.namenode.safemode.extension": 0}
    addresses = {name: f"127.0.0.1:{number}" for name, number in local.items()}
    _write(folder / "conf" / "hdfs-site.xml", {**settings, **addresses})
    _run(f"{_SERVERS}.namenode.NameNode", ["-format", "-nonInteractive"], folder / "conf")
    options = [*QUICK_START, *_knowing(folder / "conf")]
    servers: list[JavaServer] = []
    try:
        for name in ("namenode.NameNode", "datanode.DataNode"):
            log = folder / f"{name}.log"
            servers.append(JavaServer(name, found, f"{_SERVERS}.{name}", [], log=log, options=options))
        servers[0].wait_ready(lambda: _live_nodes(web_port) == 1)
        yield Hdfs(url=f"hdfs://127.0.0.1:{port}", conf=folder / "conf")
    finally:
        for server in reversed(servers):
            server.stop()


def _knowing(conf: Path) -> list[str]:
    """The option by which Java finds settings beside its jars."""
    return [f"-Xbootclasspath/a:{conf}"]


def _run(main_class: str, arguments: list[str], conf: Path) -> None:
    ended = run_tool(jars(HDFS), main_class, arguments, options=_knowing(conf))
    if ended.returncode:
        raise MissingServerError(f"{main_class} ended with {ended.returncode}:\n{ended.stderr}")


def _live_nodes(web_port: int) -> int:
    """The number of DataNodes of a NameNode that takes writes."""
    asked = f"http://127.0.0.1:{web_port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    with urllib.request.urlopen(asked, timeout=5) as answer:
        states = json.load(answer)["beans"]
    return sum(each["NumLiveDataNodes"] for each in states if each["FSState"] == "Operational")


def _write(file: Path, settings: Mapping[str, object]) -> None:
    properties = (f"<property><name>{name}</name><value>{text}</value></property>" for name, text in settings.items())
    file.write_text(f"<configuration>{''.join(properties)}</configuration>")
