"""Files of other tools, read as `import` reads them."""

from kafka_quotas.commands.other_tools.formats import Tool, format_of
from kafka_quotas.core.quota_files.declarations import Declarations, declarations

Rows = dict[str, dict[str, float | None]]


def read(tool: Tool, text: str, name: str = "file") -> tuple[Rows, list[str], list[str]]:
    """The quotas by entity, the problems and what is left out, each with its place."""
    document, problems = format_of(tool).read(text, name)
    found = declarations([document])
    return (
        {str(entry.entity): dict(entry.quotas) for entry in found.entries},
        [f"{each.location}: {each.message}" for each in (*problems, *found.problems)],
        [f"{each.location}: {each.message}" for each in found.left_out],
    )


def declared(tool: Tool, text: str) -> Declarations:
    """What a file without a problem declares."""
    document, problems = format_of(tool).read(text, "file")
    assert problems == (), text
    found = declarations([document])
    assert found.problems == (), text
    return found
