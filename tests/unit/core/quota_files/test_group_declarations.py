"""Groups in files of quotas: what several files and overlays make of them, and what is wrong with them, and where."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kafka_quotas.commands.declarative.reading import read_declarations
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates
from kafka_quotas.core.quota_files.declarations import json_schema

PAYMENTS = Group(name="payments", producer_byte_rate=50 * 1024.0**2)
CHECKOUT = Group(
    name="payments/checkout",
    members=(GroupMember(user="checkout"), GroupMember(client_id_prefix="checkout-")),
    guaranteed=GroupRates(producer_byte_rate=20 * 1024.0**2),
)
YAML = """
group:
  - {name: payments, producer_byte_rate: 50MiB}
  - name: payments/checkout
    members: [{user: checkout}, {client_id_prefix: checkout-}]
    guaranteed: {producer_byte_rate: 20MiB}
"""
TOML = """
[[group]]
name = "payments"
producer_byte_rate = "50MiB"

[[group]]
name = "payments/checkout"
members = [{ user = "checkout" }, { client_id_prefix = "checkout-" }]
guaranteed = { producer_byte_rate = "20MiB" }
"""
JSON = json.dumps(
    {
        "group": [
            {"name": "payments", "producer_byte_rate": "50MiB"},
            {
                "name": "payments/checkout",
                "members": [{"user": "checkout"}, {"client_id_prefix": "checkout-"}],
                "guaranteed": {"producer_byte_rate": 20971520},
            },
        ]
    }
)


def written(folder: Path, text: str, name: str = "q.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def problems(folder: Path, *texts: str) -> list[str]:
    paths = [written(folder, text, f"{number}.yaml") for number, text in enumerate(texts, start=1)]
    found = read_declarations(paths).problems
    return [problem.as_error().message.replace(f"{folder}/", "") for problem in found]


@pytest.mark.parametrize(("name", "text"), [("q.yaml", YAML), ("q.toml", TOML), ("q.json", JSON)])
def test_the_three_formats_mean_the_same(tmp_path: Path, name: str, text: str) -> None:
    found = read_declarations([written(tmp_path, text, name)])
    assert (found.problems, found.groups) == ((), (PAYMENTS, CHECKOUT))


def test_the_groups_of_all_files_are_one_tree_and_an_overlay_replaces_a_group_as_a_whole(tmp_path: Path) -> None:
    above = written(tmp_path, "group: [{name: payments, producer_byte_rate: 50MiB}]", "1.yaml")
    below = written(tmp_path, "group: [{name: payments/web, guaranteed: {producer_byte_rate: 1MiB}}]", "2.yaml")
    overlay = tmp_path / "prod.yaml"
    overlay.write_text("group: [{name: payments/web, members: [{user: web}]}]")
    assert [group.name for group in read_declarations([below, above]).groups] == ["payments/web", "payments"]
    found = read_declarations([above, below], [overlay])
    assert found.problems == ()
    assert found.groups == (PAYMENTS, Group(name="payments/web", members=(GroupMember(user="web"),)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("group:\n  - {name: a}\n  - {nmae: b}", "1.yaml:3: group.2: name is missing"),
        ("group:\n  - {name: a/b}", "1.yaml:2: group.1: group a/b: there is no group a around it"),
        ("group:\n  - {name: a, members: [{}]}", "1.yaml:2: group.1.members.1: it names nobody"),
        ("group:\n  - {name: a, location: x}", "1.yaml:2: group.1.location: unknown name 'location'"),
        ("group:\n  - {name: a, producer_byte_rate: $web}", "1.yaml:2: group.1.producer_byte_rate: "),
        ("group: {name: a}", "1.yaml:1: group: a mapping is not a list"),
        (
            "group:\n  - {name: a, producer_byte_rate: 1}\n  - {name: a/b, guaranteed: {producer_byte_rate: 2}}",
            "1.yaml:2: group.1: group a: the groups within it are guaranteed producer_byte_rate 2 of 1",
        ),
    ],
)
def test_a_problem_has_the_place_of_its_group(tmp_path: Path, text: str, message: str) -> None:
    assert problems(tmp_path, text)[0].startswith(message)


def test_a_group_is_declared_once_in_all_files(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "group:\n  - {name: a}", "\ngroup:\n  - {name: a}")
    assert found == f"2.yaml:3: group.1: group a appears twice, also at {tmp_path}/1.yaml:2".replace(f"{tmp_path}/", "")


def test_the_schema_takes_groups_and_refuses_what_they_have_not() -> None:
    validator = Draft202012Validator(json_schema())
    assert list(validator.iter_errors(json.loads(JSON))) == []
    for odd in ({"name": "a", "limit": 1}, {"members": []}, {"name": "a", "members": [{"usr": "x"}]}):
        assert list(validator.iter_errors({"group": [odd]})) != [], odd
