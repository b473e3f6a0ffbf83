"""A setting of a service, declared once, as metadata of a record's field.

Option, section of the configuration file, environment variable, JSON schema, reference and manual page derive from it:

    connect_timeout_s: float = setting("upstream", "--connect-timeout SECONDS", "How long ...", default=10.0)
"""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """The form of a value that is written as text. Its reader and its pattern refuse the same texts."""

    read: Callable[[str], Any]
    """Returns the value of a text, and raises `UsageError` for one that can't be meant."""
    pattern: str
    """Pattern of the texts, for the JSON schema."""
    integers: tuple[int, int | None] | None = None
    """Least and greatest number that may stand for the text, None for texts alone."""
    endless: int | None = None
    """Another number that may, and means no limit."""
    read_all: Callable[[Sequence[str]], Any] | None = None
    """Returns the value of several texts that are read together, None for texts that are read one by one."""
    write: Callable[[Any], str] = str
    """Returns the text of a value, for defaults."""


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """The declaration of a setting."""

    section: str
    """Table of the configuration file, in which the setting has its option's name with `_` for `-`."""
    names: tuple[str, ...]
    """Spellings on the command line, of which the last is the option's name."""
    metavar: str | None
    """Name or unit of the value."""
    parameter: str
    """Name among the parameters of a command."""
    help: str
    form: TextForm | None = None
    """Form of a value that is neither a number, a flag, a choice nor a path."""
    least: float | None = None
    most: float | None = None


def setting(
    section: str,
    option: str,
    about: str,
    form: TextForm | None = None,
    *,
    default: Any = MISSING,
    least: float | None = None,
    most: float | None = None,
    also: object = None,
) -> Any:
    """Return the field of a setting, required without a default, with `also` beside its metadata.

    `option` has the spellings and the name or unit of the value: `-o, --output FORM`.
    """
    names = tuple(word.rstrip(",") for word in option.split() if word.startswith("-"))
    metavar = option.partition(names[-1])[2].strip() or None
    parameter = names[-1].removeprefix("--").replace("-", "_")
    spec = SettingSpec(section, names, metavar, parameter, about, form, least, most)
    return field(default=default, metadata={SettingSpec: spec, type(also): also})
