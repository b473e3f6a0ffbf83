"""Manual pages, reference and completion files: complete, well-formed, and as committed."""

import re
from pathlib import Path
from typing import Any

import pytest
from generators.documentation.documents import (
    COMPLETIONS_FOLDER,
    MAN_FOLDER,
    REFERENCE_FOLDER,
    commands,
    documents,
    drift,
    main,
    write,
)
from generators.documentation.man_page import escape, man_page, page_name
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kafka_quotas.cli.framework.commands import PassThroughCommand
from kafka_quotas.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
ALL = list(commands())
IDS = [page_name(context) for _, context in ALL]


@pytest.mark.parametrize(("command", "context"), ALL, ids=IDS)
def test_every_command_and_option_has_help(command: TyperCommand | TyperGroup, context: Any) -> None:
    assert (command.help or "").strip()
    for parameter in command.get_params(context):
        assert (getattr(parameter, "help", None) or "").strip(), parameter.name
        assert isinstance(parameter, TyperArgument | TyperOption)
        if isinstance(parameter, TyperOption) and not (parameter.is_flag or parameter.count):
            explained = parameter.metavar or parameter.type_descriptor.is_choice
            assert explained, f"{parameter.opts[0]} needs a metavar, or help shows a Python type"


@pytest.mark.parametrize(("command", "context"), ALL, ids=IDS)
def test_help_fits_a_terminal_of_80_columns(command: TyperCommand | TyperGroup, context: Any) -> None:
    wide = [line for line in command.get_help(context).splitlines() if len(line) > 80]
    assert [line for line in wide if not re.fullmatch(r"  --[a-z-]+ [a-z|-]+", line)] == []  # choices are not folded


@pytest.mark.parametrize(("command", "context"), ALL, ids=IDS)
def test_no_option_is_named_twice(command: TyperCommand | TyperGroup, context: Any) -> None:
    names = [name for parameter in command.get_params(context) for name in (*parameter.opts, *parameter.secondary_opts)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_table_is_one_line(name: str) -> None:
    _, text = COMMANDS[name]
    assert text.endswith(".")
    assert len(text) <= 66


@pytest.mark.parametrize(("command", "context"), ALL, ids=IDS)
def test_pages_are_well_formed_roff(command: TyperCommand | TyperGroup, context: Any) -> None:
    page = man_page(command, context)
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".BR", ".nf", ".fi"}
    assert not re.search(r"(?<!\\)-", page)
    assert not re.search(r"\\(?![-e&f(])", page)
    assert "\n\n" not in page
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
        assert f".SH {section}\n" in page
    assert ("\n.SH FILES\n" in page) is not isinstance(command, PassThroughCommand)


def test_a_page_leads_to_its_group_and_to_the_commands_beside_it() -> None:
    pages = {page_name(context): man_page(command, context).replace("\\-", "-") for command, context in ALL}
    related = {name: page.partition(".SH SEE ALSO\n")[2] for name, page in pages.items()}
    assert related["kafka-quotas-tree"].startswith(".BR kafka-quotas (1),\n.BR kafka-quotas-alter (1),")
    assert "kafka-quotas-tree" not in related["kafka-quotas-tree"]
    assert ".BR kafka-quotas-daemon-check (1)" in related["kafka-quotas-daemon-run"]
    assert ".BR kafka-quotas-daemon-run (1)" in related["kafka-quotas-daemon"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("--user-default", "\\-\\-user\\-default"),
        (".hidden", "\\&.hidden"),
        ("'quoted'", "\\(aqquoted\\(aq"),
        ("back\\slash", "back\\eslash"),
    ],
)
def test_roff_escapes(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_the_folders_are_as_they_would_be_written() -> None:
    assert drift(ROOT) == []


def test_drift_is_told_file_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    assert drift(tmp_path) == []
    page = MAN_FOLDER / "kafka-quotas-alter.1"
    left_over, missing = MAN_FOLDER / "kafka-quotas-gone.1", COMPLETIONS_FOLDER / "kafka-quotas.fish"
    (tmp_path / page).write_text("old", encoding="utf-8")
    (tmp_path / left_over).write_text("old", encoding="utf-8")
    (tmp_path / missing).unlink()
    expected = [f"left over: {left_over}", f"out of date: {page}", f"missing: {missing}"]
    assert drift(tmp_path) == expected
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == expected
    write(tmp_path)
    assert main(["--check", "--root", str(tmp_path)]) == 0
    assert not (tmp_path / left_over).exists()


def test_completion_files_are_those_of_each_shell() -> None:
    texts = {path.name: text for path, text in documents().items() if path.parent == COMPLETIONS_FOLDER}
    assert set(texts) == {"kafka-quotas.bash", "kafka-quotas.fish", "_kafka-quotas"}
    assert texts["kafka-quotas.bash"].startswith("_kafka_quotas_completion() {")
    assert texts["kafka-quotas.bash"].endswith("complete -o default -F _kafka_quotas_completion kafka-quotas\n")
    assert texts["kafka-quotas.fish"].startswith("complete --command kafka-quotas ")
    header, command = texts["_kafka-quotas"].splitlines()
    assert header == "#compdef kafka-quotas"
    assert "_KAFKA_QUOTAS_COMPLETE=complete_zsh kafka-quotas" in command


def test_the_reference_has_every_command_and_option_once() -> None:
    texts = {path.name: text for path, text in documents().items() if path.parent == REFERENCE_FOLDER}
    index = texts.pop("README.md")
    headings = re.findall(r"^## (.+)$", "".join(texts.values()), re.MULTILINE)
    assert sorted(headings) == sorted(str(context.command_path) for _, context in ALL[1:])
    links = re.findall(r"\]\(([\w-]+\.md)#([\w-]+)\)", index)
    assert [anchor.replace("kafka-quotas-", "", 1) for _, anchor in links] == [name[13:] for name in IDS[1:]]
    assert {file for file, _ in links} == set(texts)
    assert "| `--add-config KEY=VALUE,...` | Quotas to set, with units: producer_byte_rate=10MiB" in texts["quotas.md"]


def test_text_in_the_reference_is_shown_as_it_stands() -> None:
    texts = "".join(text for path, text in documents().items() if path.parent == REFERENCE_FOLDER)
    prose = re.sub(r"```(?:text|sh)\n.*?```|`[^`\n]*`", "", texts, flags=re.DOTALL)
    assert re.findall(r"(?<!\\)[<*]", prose) == []
