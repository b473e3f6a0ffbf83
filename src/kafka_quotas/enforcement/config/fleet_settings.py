"""The settings of a daemon's part in a fleet."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.topic_target import TopicTarget

FLEET: Final = "default"
"""Name of the fleet of daemons that give none."""


class Fallback(StrEnum):
    """What a member that is cut off from the others allows."""

    SHARE = "share"
    """The share of each limit that its clients used last, an equal one where none did."""
    WHOLE = "whole"
    """Each whole limit, as without a fleet."""
    CLOSED = "closed"
    """As good as nothing: every request is followed by a throttle time of a whole window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The topic that the members share, and how this one behaves."""

    target: TopicTarget
    """Topic of the reports."""
    name: str = FLEET
    """Name of the fleet, of which a topic can have several."""
    fallback: Fallback = Fallback.SHARE
    """What to allow while the others can't be heard."""
    secret_file: Path | None = None
    """File of the secrets that sign reports, None for reports that anybody could write."""


MIN_SECRET_BYTES: Final = 16
_MAX_FILE_BYTES: Final = 4096


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Return the secrets in a file, one a line: the first signs, the second is for a change of secrets.

    Raises:
        UsageError: The file can't be read, holds no secret or more than two, or one is too short.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", hint="--fleet-secret-file names a file") from error
    secrets = tuple(line.strip() for line in content.splitlines() if line.strip())
    hint = "one secret a line, at most two; for example: openssl rand -hex 32"
    if len(content) > _MAX_FILE_BYTES or not 1 <= len(secrets) <= 2:
        raise UsageError(f"{path}: not a file of one or two secrets", hint=hint)
    if min(map(len, secrets)) < MIN_SECRET_BYTES:
        raise UsageError(f"{path}: a secret has fewer than {MIN_SECRET_BYTES} characters", hint=hint)
    return secrets


def acls_needed(topic: str) -> str:
    """Return what keeps others from a fleet's topic if its reports are not signed."""
    return (
        f"--fleet-secret-file, or ACLs on topic {topic}: Create, Describe, DescribeConfigs, Read and Write for the "
        "daemons' user; for nobody else Write, Delete, Alter or AlterConfigs, and no Alter on the cluster"
    )
