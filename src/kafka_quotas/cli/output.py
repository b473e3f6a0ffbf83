"""The forms in which a listing can be printed."""

from enum import StrEnum


class Output(StrEnum):
    """What `--output` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"
