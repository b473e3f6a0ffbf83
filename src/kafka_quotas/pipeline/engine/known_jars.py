"""What lets Spark on this machine start sooner: the jars of an earlier session, which need not be looked for again.

They are in Ivy's cache. The user's cache has their paths, by PySpark and packages.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_PACKAGES: Final = "spark.jars.packages"
_CLASS_PATH: Final = "spark.driver.extraClassPath"


class KnownJars:
    """The jars of earlier sessions with some properties of Spark."""

    def __init__(self, properties: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> None:
        own = sorted(each for each in properties.items() if each[0].startswith("spark.jars"))
        key = sha256(f"{files('pyspark')} {own}".encode()).hexdigest()[:16]
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._properties = properties
        self._file = cache / "kafka-quotas" / f"spark-{key}.jars"

    def properties(self) -> dict[str, str]:
        """Return the properties, with the jars of an earlier session in place of packages if all are there."""
        try:
            jars = self._file.read_text(encoding="utf-8").splitlines()
        except OSError:
            jars = []
        if not jars or not all(Path(each).is_file() for each in jars):
            return dict(self._properties)
        found = {name: value for name, value in self._properties.items() if not name.startswith("spark.jars")}
        return found | {_CLASS_PATH: os.pathsep.join(filter(None, (found.get(_CLASS_PATH), *jars)))}

    def keep(self, jars: str | None) -> None:
        """Keep the jars of a session, as it names them, for later ones."""
        if jars and _PACKAGES in self._properties:
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text("\n".join(urlsplit(each).path for each in jars.split(",")), encoding="utf-8")
