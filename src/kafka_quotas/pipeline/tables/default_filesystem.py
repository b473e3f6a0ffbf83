"""Hadoop's default file system, which URLs without a host mean, as `hdfs:///traffic`.

Source: `fs.defaultFS` in the `core-site.xml` that Spark and delta-rs read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
_NAME: Final = "fs.defaultFS"


def default_host(scheme: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the host, with its port, of the default file system.

    Returns:
        None where it is of another scheme, or no file says which it is.
    """
    folders = [environment[name] for name in _FOLDERS if environment.get(name)]
    if home := environment.get("HADOOP_HOME"):
        folders.append(f"{home}/etc/hadoop")
    defaults = (_default_in(Path(folder, "core-site.xml")) for folder in folders)
    url = urlsplit(next((each for each in defaults if each), ""))
    return url.netloc if url.scheme == scheme and url.netloc else None


def _default_in(file: Path) -> str | None:
    try:
        root = ET.parse(file).getroot()  # noqa: S314 - the user's own configuration
    except (OSError, ET.ParseError):
        return None
    values = [each.findtext("value", "").strip() for each in root.iter("property") if each.findtext("name") == _NAME]
    return values[-1] if values else None
