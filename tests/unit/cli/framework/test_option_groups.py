"""Option groups: what Typer sees of them, and what a command gets."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand, TyperOption

from kafka_quotas.cli.framework.commands import command_of
from kafka_quotas.cli.framework.option_groups import (
    Without,
    group_value,
    option,
    option_group,
    option_info,
    required,
)
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.setting import TextForm, setting


def _complete(incomplete: str) -> list[str]:
    return [name for name in ("alice", "bob") if name.startswith(incomplete)]


def _doubled(value: int) -> int:
    return value * 2


Single = Annotated[Path | None, option_info("--file FILE", help="A file.")]


@option_group("Names")
class Names:
    """Options that name something."""

    user: str = required("--user", "-u NAME", help="Who.", autocompletion=_complete)
    loud: bool = option("--loud/--quiet", default=False, help="How.")
    tags: list[str] | None = option("--tag", help="Which.", envvar="TAGS")
    file: Single = None
    note: str = "unset"


@option_group("More names")
class MoreNames(Names):
    """The same with a count, of which the tags have another help text."""

    tags: list[str] | None = option("--tag", help="Which ones.")
    count: int = option("--count", default=3, min=1, callback=_doubled, help="How many.")


@option_group("All names")
class Everything:
    """A group that holds groups."""

    names: Names
    more: str = option("--more", default="none", help="What else.")


def _built(command: Any) -> tuple[TyperCommand, list[TyperOption]]:
    built = command_of(command, "try")
    assert isinstance(built, TyperCommand)
    return built, [each for each in built.params if isinstance(each, TyperOption) and each.name != "verbose"]


def _options(group: Any) -> list[TyperOption]:
    def command(*, asked: Any) -> None:
        pass

    command.__annotations__["asked"] = group
    return _built(command)[1]


def _run(command: Any, *arguments: str) -> Any:
    return _built(command)[0].main(list(arguments), prog_name="try", standalone_mode=False)


def test_typer_sees_the_options_of_a_group_in_its_place() -> None:
    def command(*, before: str = "x", names: Names, after: int = 1) -> None:
        pass

    _, options = _built(command)

    assert [each.name for each in options] == ["before", "user", "loud", "tags", "file", "after"]
    user, loud, tags, file = options[1:5]
    assert (user.opts, user.required, user.metavar, user.help) == (["--user", "-u"], True, "NAME", "Who.")
    assert (loud.opts, loud.secondary_opts, loud.is_flag, loud.default) == (["--loud"], ["--quiet"], True, False)
    assert (tags.multiple, tags.default, tags.envvar, tags.help) == (True, None, "TAGS", "Which.")
    assert (file.required, file.default) == (False, None)
    assert [each.rich_help_panel for each in options] == [None, *["Names"] * 4, None]


def test_options_stand_below_the_heading_of_the_innermost_group() -> None:
    headings = {each.name: each.rich_help_panel for each in _options(Everything)}
    assert headings == {"user": "Names", "loud": "Names", "tags": "Names", "file": "Names", "more": "All names"}
    assert {each.rich_help_panel for each in _options(MoreNames)} == {"More names"}


def test_a_command_gets_its_groups_as_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(ctx: typer.Context, *, asked: Everything) -> tuple[str | None, Everything]:
        return ctx.info_name, asked

    given = Names(user="bob", loud=True, tags=["a", "b"], file=Path("f"))
    assert _run(command, "--user", "bob", "--loud", "--tag", "a", "--tag", "b", "--file", "f") == (
        "try",
        Everything(names=given, more="none"),
    )

    monkeypatch.setenv("TAGS", "c d")
    assert _run(command, "-u", "alice", "--more", "y")[1] == Everything(
        names=Names(user="alice", tags=["c", "d"]), more="y"
    )
    with pytest.raises(typer.TyperException, match="Missing parameter: user"):
        _run(command)


def test_a_subclass_changes_an_option_in_place() -> None:
    def command(*, asked: MoreNames) -> MoreNames:
        return asked

    _, options = _built(command)

    assert [each.name for each in options] == ["user", "loud", "tags", "file", "count"]
    assert options[2].help == "Which ones."
    assert _run(command, "--user", "bob", "--count", "4").count == 8


def test_the_default_of_a_group_gives_its_options_their_defaults() -> None:
    def command(*, names: Names = Names(user="alice", loud=True, note="ours")) -> Names:
        return names

    _, options = _built(command)

    assert [(each.default, each.required) for each in options[:2]] == [("alice", False), (True, False)]
    assert _run(command, "--quiet") == Names(user="alice", note="ours")


def test_an_option_that_a_command_lacks_keeps_its_default() -> None:
    def command(*, tags: str = "own", asked: Annotated[Everything, Without("tags", "more", "loud")]) -> Everything:
        assert tags == "mine"
        return asked

    _, options = _built(command)

    assert [each.name for each in options] == ["tags", "user", "file"]
    assert _run(command, "--user", "bob", "--tags", "mine") == Everything(names=Names(user="bob"), more="none")


def test_completion_asks_the_function_of_the_option() -> None:
    def command(*, names: Names) -> None:
        pass

    built, (user, *_) = _built(command)

    found = user.shell_complete(built.context_class(built), "a")
    assert [str(getattr(each, "value", each)) for each in found] == ["alice"]


def _halves(text: str) -> int:
    if not text.endswith("h"):
        raise UsageError(f"not in halves: {text}")
    return int(text[:-1]) * 2


HALVES = TextForm(read=_halves, pattern="h$", write=lambda value: f"{value // 2}h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Settings that are there if the first one is given."""

    refused_alone = ("size",)
    first: str = setting("inner", "--first NAME", "The first.")
    size: int = setting("inner", "--size HALVES", "How large.", HALVES, default=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of settings that holds another one."""

    names: frozenset[str] = setting("outer", "--name NAME", "Which.", default=frozenset())
    limit: int | None = setting("outer", "--limit N", "At most.", default=None, least=1)
    plain: str = "as it is"
    inner: Inner | None = None
    also: tuple[int, ...] = field(default_factory=tuple)


def test_a_record_of_settings_is_a_group_with_its_options() -> None:
    found = {each.opts[0]: each for each in _options(Record)}
    assert list(found) == ["--name", "--limit", "--first", "--size"]
    size = found["--size"]
    assert (size.name, size.default, size.metavar, size.rich_help_panel) == ("size", "2h", "HALVES", "Inner")
    assert not found["--first"].required


def test_settings_are_read_into_the_types_of_the_record() -> None:
    given = {"name": ["a", "b"], "limit": 3, "first": "x", "size": "5h"}
    assert group_value(Record, given) == Record(names=frozenset({"a", "b"}), limit=3, inner=Inner(first="x", size=10))
    assert group_value(Record, {"name": None, "limit": None, "first": None, "size": "2h"}) == Record()


def test_a_setting_that_can_not_be_meant_is_named() -> None:
    with pytest.raises(UsageError, match="--size: not in halves: 5"):
        group_value(Record, {"first": "x", "size": "5"})
    with pytest.raises(UsageError, match="--size without --first"):
        group_value(Record, {"size": "5h"})
