"""Where control sockets are, when nobody says otherwise: in the user's runtime folder, one per listening port."""

from pathlib import Path
from typing import Final

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.control import ControlError, check_folder

_SUFFIX: Final = ".sock"


def runtime_folder() -> Path:
    """The user's own folder for things that live as long as a session."""
    import warnings  # noqa: PLC0415 - only an unchosen path needs it

    from platformdirs import user_runtime_path  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a session without such a folder gets one below /tmp
        return user_runtime_path("kafka-quotas", appauthor=False)


def control_path(port: int, *, folder: Path | None = None) -> Path:
    """The path for a daemon whose bootstrap listener has this port."""
    return (folder or runtime_folder()) / f"daemon-{port}{_SUFFIX}"


def find_control_path(*, folder: Path | None = None) -> Path:
    """Find the path of the one daemon that there is.

    Raises:
        ControlError: There is none, or the folder is one in which another user could put a socket of his own.
        UsageError: There are several.
    """
    place = folder or runtime_folder()
    found = sorted(place.glob(f"daemon-*{_SUFFIX}")) if place.is_dir() else []
    if not found:
        raise ControlError(f"no daemon of yours is running (looked in {place})", hint="name its socket with --control")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UsageError(f"several daemons are running: {names}", hint=f"name one with --control {place}/NAME")
    check_folder(place)
    return found[0]
