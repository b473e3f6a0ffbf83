"""What lets Spark on this machine start sooner: the jars of an earlier session, and an archive of its classes.

Both are in the user's cache. A first session fetches jars by Ivy, and their paths are kept. A second has them on its
class path, and its Java leaves the archive when it ends. Later ones have their classes from there: a command of 19 s
takes 14. The second takes half as long again, so that another try waits for a day if its Java was killed. Java itself
refuses an archive that is half written, or of other jars.

Source: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html, dynamic archives.
"""

import os
import time
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
_MAGIC_BYTES: Final = 4
"""The first bytes of an archive, zeros until Java has written all of it."""
_TRIED_S: Final = 86_400
"""How long an archive that is not whole may still be written."""


class KnownJars:
    """The jars of earlier sessions with some properties of Spark, and the classes that Java loads."""

    def __init__(self, properties: Mapping[str, str], java: Path, environment: Mapping[str, str] = os.environ) -> None:
        own = sorted(each for each in properties.items() if each[0].startswith(("spark.jars", _CLASS_PATH)))
        installed = (java.resolve(), Path(str(files("pyspark")), "jars"))
        known = [*((str(each), each.stat().st_mtime_ns) for each in installed if each.exists()), *own]
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._properties = properties
        self._file = cache / "kafka-quotas" / f"spark-{sha256(repr(known).encode()).hexdigest()[:16]}.jars"

    def properties(self) -> dict[str, str]:
        """Return the properties, with the jars of an earlier session in place of packages if all are there."""
        try:
            jars = self._file.read_text(encoding="utf-8").splitlines()
        except OSError:
            jars = []
        if not jars or not all(Path(each).is_file() for each in jars):
            return dict(self._properties)
        found = {name: value for name, value in self._properties.items() if not name.startswith("spark.jars")}
        options = filter(None, (found.get(JAVA_OPTIONS), self._archive_option()))
        return found | {
            _CLASS_PATH: os.pathsep.join(filter(None, (found.get(_CLASS_PATH), *jars))),
            JAVA_OPTIONS: " ".join(options),
        }

    def _archive_option(self) -> str:
        """Return Java's option to load classes from the archive, or to leave one."""
        archive = self._file.with_suffix(".jsa")
        with suppress(OSError):
            if archive.exists():
                with archive.open("rb") as file:
                    if any(file.read(_MAGIC_BYTES)):
                        return f'"-XX:SharedArchiveFile={archive}"'
                if time.time() - archive.stat().st_mtime < _TRIED_S:
                    return ""
            archive.touch()
            return f'"-XX:ArchiveClassesAtExit={archive}"'
        return ""

    def keep(self, jars: str | None) -> None:
        """Keep the jars of a session, as it names them, for later ones."""
        if jars and _PACKAGES in self._properties:
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text("\n".join(urlsplit(each).path for each in jars.split(",")), encoding="utf-8")
                self.forget_classes()

    def forget_classes(self) -> bool:
        """Delete the archive, and return whether there was one: Java crashes with one that was cut off."""
        archive = self._file.with_suffix(".jsa")
        was_used = f"SharedArchiveFile={archive}" in self.properties().get(JAVA_OPTIONS, "")
        with suppress(OSError):
            archive.unlink(missing_ok=True)
        return was_used
