"""Hadoop's settings on this machine, as `core-site.xml` has them, which Spark and delta-rs read.

The default file system (`fs.defaultFS`) is the one that URLs without a host mean, as `hdfs:///traffic`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
_DEFAULT: Final = "fs.defaultFS"


def default_host(scheme: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the host, with its port, of the default file system.

    Returns:
        None where it is of another scheme, or no file says which it is.
    """
    url = urlsplit(hadoop_setting(_DEFAULT, environment) or "")
    return url.netloc if url.scheme == scheme and url.netloc else None


def hadoop_setting(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a setting by the first file that has it, None where none has."""
    folders = [environment[each] for each in _FOLDERS if environment.get(each)]
    if home := environment.get("HADOOP_HOME"):
        folders.append(f"{home}/etc/hadoop")
    values = (_setting_in(Path(folder, "core-site.xml"), name) for folder in folders)
    return next((each for each in values if each), None)


def _setting_in(file: Path, name: str) -> str | None:
    try:
        root = ET.parse(file).getroot()  # noqa: S314 - the user's own configuration
    except (OSError, ET.ParseError):
        return None
    values = [each.findtext("value", "").strip() for each in root.iter("property") if each.findtext("name") == name]
    return values[-1] if values else None
