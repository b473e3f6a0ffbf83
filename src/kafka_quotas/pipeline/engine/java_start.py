"""What lets Spark's Java on this machine start sooner: the jars of an earlier session, and an archive of its classes.

Both are in the user's cache, and of one PySpark, one Java and one set of packages. A first session fetches jars, a
second has them on its class path and leaves the archive at its end. A third loads its classes from there, which takes
it a third of the processor time less.

Source: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html, dynamic archives.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kafka_quotas.pipeline.engine.spark_settings import JAVA_OPTIONS

_PACKAGES: Final = "spark.jars.packages"
_CLASS_PATH: Final = "spark.driver.extraClassPath"


class JavaStart:
    """The cache of what sessions with some properties of Spark start with."""

    def __init__(self, properties: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> None:
        own = {name: value for name, value in properties.items() if name.startswith("spark.jars")}
        self._properties = properties
        self._folder = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-quotas"
        self._jars = self._folder / f"spark-{_digest(_spark(), *map(str, sorted(own.items())))}.jars"

    def properties(self, java: Path) -> dict[str, str]:
        """Return the properties with an earlier session's jars in place of packages, and with the archive.

        Those of the session itself without such jars. `java` is the program.
        """
        jars = self._known_jars()
        if not jars:
            return dict(self._properties)
        found = {name: value for name, value in self._properties.items() if not name.startswith("spark.jars")}
        found[_CLASS_PATH] = os.pathsep.join(filter(None, (found.get(_CLASS_PATH), *jars)))
        archive = self._folder / f"spark-{_digest(_spark(), java, java.stat().st_mtime_ns, found[_CLASS_PATH])}.jsa"
        option = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
        return found | {JAVA_OPTIONS: f'{found.get(JAVA_OPTIONS, "")} "-XX:{option}={archive}"'}

    def keep(self, jars: str | None) -> None:
        """Keep the jars of a session, as it names them, for later ones."""
        if jars and _PACKAGES in self._properties:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._jars.write_text("\n".join(urlsplit(each).path for each in jars.split(",")), encoding="utf-8")

    def _known_jars(self) -> list[str]:
        try:
            jars = self._jars.read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        return jars if all(Path(each).is_file() for each in jars) else []


def _spark() -> Path:
    return Path(str(files("pyspark")))


def _digest(*known: object) -> str:
    return sha256("\n".join(map(str, known)).encode()).hexdigest()[:16]
