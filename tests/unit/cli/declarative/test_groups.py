"""Groups of clients as part of the declared state: diff, apply, plans, export, validate, --policy and revert."""

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.processes.quota_desk import QuotaDesk
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.declarative.apply import DesiredState
from kafka_quotas.commands.declarative.reconcile import Reconciler
from kafka_quotas.core.clock import SystemClock
from kafka_quotas.core.groups.group import Group, GroupMember
from kafka_quotas.core.groups.group_changes import groups_text
from kafka_quotas.stores import JournalWriter, open_store

BOTH = """
entries:
  - {entity: {user: alice}, quotas: {producer_byte_rate: 10MiB}}
group:
  - {name: payments, producer_byte_rate: 50MiB}
  - name: payments/checkout
    members: [{user: checkout}, {client_id_prefix: checkout-}]
    guaranteed: {producer_byte_rate: 20MiB}
"""
ENTRY = "- {entity: {user: alice}, quotas: {producer_byte_rate: 10MiB}}"
POLICY = '# ours\n[[entity]]\nuser = "x"\nrequest_rate = 5\n\n[[group]]\nname = "old"\n\n[thresholds]\ntotal = "1MiB"\n'


@pytest.fixture
def desk(tmp_path: Path) -> QuotaDesk:
    return QuotaDesk(tmp_path)


def groups_in(desk: QuotaDesk) -> list[str]:
    store = open_store(desk.url)
    names = [group.name for group in store.groups()]
    store.close()
    return names


def rows(out: str) -> list[list[str]]:
    return [re.split(r"  +", line) for line in out.splitlines() if re.match("[-+~] ", line)]


def test_apply_puts_quotas_and_groups_into_a_local_store_and_again_there_is_nothing_to_do(desk: QuotaDesk) -> None:
    path = desk.file(BOTH)
    code, out, err = desk.run("apply", path)
    assert (code, err) == (0, "")
    assert rows(out) == [
        ["+", "user alice", "producer_byte_rate", "not set", "10 MiB/s"],
        ["+", "group payments", "group", "payments"],
        ["+", "group payments", "producer_byte_rate", "not set", "50 MiB/s"],
        ["+", "group payments/checkout", "group", "payments/checkout"],
        ["+", "group payments/checkout", "guaranteed.producer_byte_rate", "not set", "20 MiB/s"],
        ["+", "group payments/checkout", "member", "user checkout"],
        ["+", "group payments/checkout", "member", "client_id_prefix checkout-"],
    ]
    assert out.splitlines()[-2:] == [
        f"Made 1 change to 1 entity in {desk.url}.",
        f"Made 6 changes to 2 groups in {desk.url}.",
    ]
    assert groups_in(desk) == ["payments", "payments/checkout"]
    assert desk.run("apply", path) == (0, f"Nothing to change in {desk.url}.\n", "")
    assert desk.run("diff", path, "--exit-code")[0] == 0


def test_diff_shows_old_and_new_and_who_is_concerned_and_changes_nothing(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(BOTH))
    changed = desk.file(BOTH.replace("50MiB", "40MiB").replace("user: checkout", "user: till"))
    code, out, err = desk.run("diff", changed, "--exit-code")
    assert (code, err) == (3, "")
    assert rows(out) == [
        ["~", "group payments", "producer_byte_rate", "50 MiB/s", "40 MiB/s"],
        ["-", "group payments/checkout", "member", "user checkout"],
        ["+", "group payments/checkout", "member", "user till"],
    ]
    moved = [re.split(r"  +", line) for line in out.splitlines() if "payments/checkout  " in line and " -> " in line]
    assert moved == [
        ["user checkout", "payments/checkout", "none", "produce 50 MiB/s -> unlimited"],
        ["user till", "none", "payments/checkout", "produce unlimited -> 40 MiB/s"],
        ["client-id checkout-*", "payments/checkout", "payments/checkout", "produce 50 MiB/s -> 40 MiB/s"],
    ]
    assert out.splitlines()[-1].endswith("; groups of 3 clients differ")
    document = desk.data("diff", changed)["groups"]
    assert document["changes"][0] == {
        "group": "payments",
        "key": "producer_byte_rate",
        "old": 52428800,
        "new": 41943040,
    }
    assert document["moved"][1]["client"] == {"user": "till"}
    comment = desk.run("diff", changed, "--output", "markdown")[1]
    assert "| change | `group payments` |" in re.sub(r" +", " ", comment)
    assert "Clients whose group or its limits change" in comment
    assert "CSV has no groups" in desk.run("diff", changed, "--output", "csv")[2]
    assert desk.run("diff", desk.file(BOTH), "--exit-code")[0] == 0


def test_a_group_that_is_not_declared_stays_unless_it_is_pruned(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(BOTH))
    path = desk.file(BOTH[: BOTH.index("  - name: payments/checkout")])
    code, out, err = desk.run("apply", path)
    assert (code, out) == (0, f"Nothing to change in {desk.url}.\n")
    assert "left alone, not declared or not named by --selector: group payments/checkout" in err
    code, out, _ = desk.run("apply", path, "--prune")
    assert (code, rows(out)) == (0, [["-", "group payments/checkout", "group", "payments/checkout"]])
    code, _, err = desk.run("apply", desk.file(ENTRY), "--prune")
    assert (code, err.splitlines()[0]) == (1, "error: this would remove 1 of 1 groups, more than 50 %")
    assert desk.run("apply", desk.file(ENTRY), "--prune", "--prune-limit", "100")[0] == 0
    assert groups_in(desk) == []


def test_groups_have_to_fit_with_those_that_stay(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(BOTH))
    smaller = desk.file("group: [{name: payments, producer_byte_rate: 10MiB}]")
    code, out, err = desk.run("apply", smaller)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: with the groups that stay in {desk.url}: group payments: the groups within it are")
    assert desk.run("diff", desk.file(BOTH), "--exit-code")[0] == 0


def test_a_selector_names_the_groups_that_a_file_owns(desk: QuotaDesk) -> None:
    path = desk.file(BOTH)
    assert desk.run("apply", path, "--selector", "user=alice")[0] == 0
    assert groups_in(desk) == []
    assert desk.run("apply", path, "--selector", "group=payments")[0] == 0
    assert groups_in(desk) == ["payments"]


@pytest.mark.parametrize("store", ["kafka://127.0.0.1:1", "zk://127.0.0.1:1", "static:/nowhere"])
@pytest.mark.parametrize("command", ["apply", "diff"])
def test_a_store_that_can_not_keep_groups_refuses_them_before_it_is_asked(
    desk: QuotaDesk, store: str, command: str
) -> None:
    code, out, err = desk.run(command, desk.file(BOTH), "--store", store)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: Kafka has no groups, so this store can't hold group payments",
        "hint: keep groups in a local store, or in the policy file of the daemon: add --policy FILE",
    ]


def test_with_a_policy_file_each_part_goes_where_it_belongs(desk: QuotaDesk) -> None:
    policy, path = Path(desk.file(POLICY, "policy.toml")), desk.file(BOTH)
    named = ("--policy", str(policy))
    assert desk.run("diff", path, *named, "--exit-code")[0] == 3
    assert policy.read_text() == POLICY
    code, out, err = desk.run("apply", path, *named)
    assert (code, out.splitlines()[-1]) == (0, f"Made 6 changes to 2 groups in {policy}.")
    assert f"note: kafka-quotas daemon reload puts {policy} in force" in err
    assert groups_in(desk) == []
    assert "user alice" in desk.quotas()
    begin, end = POLICY.split("\n[thresholds]")
    assert policy.read_text().startswith(begin)
    assert policy.read_text().endswith(f"\n[thresholds]{end}")
    assert desk.run("diff", path, *named, "--exit-code")[0] == 0
    assert desk.run("apply", path, *named, "--prune")[0] == 0
    exported = desk.run("export", *named)[1]
    assert '{name: "payments/checkout", members:' in exported
    assert "name: old" not in exported
    assert desk.run("diff", desk.file(exported, "e.yaml"), *named, "--exit-code", "--prune")[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("rubbish", "not TOML"),
        ("[[group]]\nname = 'a/b'\n", "there is no group a around it"),
        ("group = [{ name = 'old' }]\n", "can't be replaced without a change to anything else"),
    ],
)
def test_a_policy_file_that_can_not_be_used_stops_it_before_anything_changes(
    desk: QuotaDesk, text: str | None, message: str
) -> None:
    policy = desk.folder / "policy.toml"
    if text is not None:
        policy.write_text(text)
    code, out, err = desk.run("apply", desk.file(BOTH), "--policy", str(policy))
    assert (code, out, message in err) == (2, "", True)
    assert desk.quotas() == {}


def test_a_plan_carries_groups_and_is_stale_once_they_have_changed(desk: QuotaDesk) -> None:
    plan = str(desk.folder / "plan.json")
    desk.run("diff", desk.file(BOTH), "--out", plan)
    code, _, err = desk.run("apply", plan, "--policy", desk.file(POLICY, "policy.toml"))
    assert (code, err.splitlines()[0]) == (2, f"error: the plan has groups for {desk.url}")
    assert desk.run("apply", plan, "--dry-run")[1].splitlines()[-1].startswith("Dry run: would make 6 changes")
    assert desk.run("apply", plan)[0] == 0
    assert groups_in(desk) == ["payments", "payments/checkout"]
    assert desk.run("apply", plan) == (0, f"Nothing to change in {desk.url}.\n", "")
    desk.run("apply", desk.file(BOTH.replace("50MiB", "60MiB")))
    code, _, err = desk.run("apply", plan)
    assert (code, err.splitlines()[0]) == (1, "error: the groups have changed since the plan was made")


@pytest.mark.parametrize("form", ["yaml", "json", "toml"])
def test_export_writes_what_apply_reads_and_other_tools_get_none(desk: QuotaDesk, form: str) -> None:
    desk.run("apply", desk.file(BOTH))
    path = str(desk.folder / f"export.{form}")
    assert "1 entity and 2 groups written" in desk.run("export", "--out", path)[2]
    assert desk.run("diff", path, "--prune", "--exit-code")[0] == 0
    assert desk.run("validate", path)[1] == "1 file, 1 entity, 2 groups: OK\n"
    code, out, err = desk.run("export", "--format", "rpk")
    assert (code, out, "group payments: Kafka has no groups" in err) == (2, "", True)
    assert "group" not in desk.run("export", "--selector", "user")[1]


CHANGED = BOTH.replace("50MiB", "60MiB").replace("{user: checkout}", "{user: till}").replace("10MiB", "5MiB")


def test_revert_puts_groups_and_quotas_back_as_they_were(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(BOTH))
    before, quotas = groups_as_text(desk), desk.quotas()
    desk.run("apply", desk.file(CHANGED), "--reason", "ticket 42")
    changed = groups_as_text(desk)
    code, out, err = desk.run("revert", "last")
    assert (code, "note: nothing was changed; --yes undoes it" in err) == (0, True)
    assert out.splitlines()[0].endswith(f" in {desk.url}: ticket 42")
    assert [re.split(r"  +", line) for line in out.splitlines()[3:]] == [
        ["user alice", "producer_byte_rate", "5 MiB/s", "10 MiB/s", "to undo"],
        ["group payments", "producer_byte_rate", "60 MiB/s", "50 MiB/s", "to undo"],
        ["group payments/checkout", "member", "user till", "to undo"],
        ["group payments/checkout", "member", "user checkout", "to undo"],
    ]
    assert groups_as_text(desk) == changed
    document = desk.data("revert", "last", "--yes")["changes"]
    assert {each["state"] for each in document} == {"undone"}
    assert document[1]["entity"] == {"group": "payments"}
    assert (groups_as_text(desk), desk.quotas()) == (before, quotas)
    assert "reverts" in desk.run("revert", "--list")[1]
    assert desk.run("revert", "last", "--yes")[0] == 0  # a revert can be reverted
    assert groups_as_text(desk) == changed


def test_groups_that_somebody_has_changed_since_go_back_only_by_force(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(BOTH))
    first = groups_as_text(desk)
    desk.run("apply", desk.file(CHANGED))
    with closing(open_store(desk.url)) as store:
        store.replace_groups([Group(name="payments", members=(GroupMember(user="me"),))], expected=store.groups())
    theirs, quotas = groups_as_text(desk), desk.quotas()
    for options in ((), ("--yes",), ("--out", f"{desk.folder}/plan.json")):
        code, _, err = desk.run("revert", "last", *options)
        assert (code, err.splitlines()) == (
            1,
            [
                f"error: the groups in {desk.url} have changed since",
                "hint: --force puts those of before in their place all the same",
            ],
        )
    assert (groups_as_text(desk), desk.quotas()) == (theirs, quotas)
    assert desk.run("revert", "last", "--yes", "--force")[0] == 0
    assert groups_as_text(desk) == first


def test_what_puts_groups_back_is_kept_as_a_plan(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(BOTH))
    code, _, err = desk.run("revert", "last", "--out", f"{desk.folder}/plan.json")
    assert code == 0, err
    assert desk.run("apply", f"{desk.folder}/plan.json", "--prune-limit", "100")[0] == 0
    assert (groups_as_text(desk), desk.quotas()) == ("[]", {})
    assert "nothing is left to undo" in desk.run("revert", entry_ids(desk)[0])[2]


def test_revert_puts_the_groups_of_a_policy_file_back(desk: QuotaDesk) -> None:
    policy = desk.folder / "policy.toml"
    policy.write_text(POLICY)
    assert desk.run("apply", desk.file(BOTH), "--policy", str(policy))[0] == 0
    assert "payments" in policy.read_text()
    code, out, err = desk.run("revert", "last", "--yes")
    assert (code, "group payments/checkout" in out) == (0, True), err
    assert policy.read_text().split() == POLICY.split()


def test_an_entry_whose_quotas_are_refused_is_not_reverted_by_its_groups_alone(desk: QuotaDesk) -> None:
    policy = desk.folder / "policy.toml"
    policy.write_text(POLICY)
    assert desk.run("apply", desk.file(BOTH), "--policy", str(policy))[0] == 0
    lines = [json.loads(line) for line in desk.journal.path.read_text().splitlines()]
    (quota,) = (change for each in lines for change in each["changes"])
    quota["old"] = -5.0  # as a store has it that takes what this one refuses
    desk.journal.path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    code, _, err = desk.run("revert", "last", "--yes")
    assert code == 1, err
    assert policy.read_text().split() == POLICY.split()
    entries = desk.data("revert", "--list")["entries"]
    assert {each["reverted"] for each in entries} == {False}


def test_of_an_entry_of_an_earlier_version_the_groups_stay(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(BOTH))
    lines = [json.loads(line) for line in desk.journal.path.read_text().splitlines()]
    assert next(each["groups"] for each in lines if "groups" in each) == ["payments", "payments/checkout"]
    assert "group payments" in desk.run("revert", "--list")[1]
    for each in lines:
        each.pop("undo_groups", None)
    desk.journal.path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    code, _, err = desk.run("revert", "last", "--yes")
    assert (code, "note: not undone: group payments; apply an earlier file of it" in err) == (0, True)
    assert (groups_in(desk), desk.quotas()) == (["payments", "payments/checkout"], {})


def entry_ids(desk: QuotaDesk) -> list[str]:
    return [json.loads(line)["id"] for line in desk.journal.path.read_text().splitlines()]


def groups_as_text(desk: QuotaDesk) -> str:
    with closing(open_store(desk.url)) as store:
        return groups_text(store.groups())


def test_rounds_of_watch_bring_groups_back_and_count_them_as_drift(desk: QuotaDesk) -> None:
    store, path = open_store(desk.url), desk.file(BOTH)
    recorder = JournalWriter(
        journal=desk.journal, clock=SystemClock(), entry_id="x", command="apply", user="me", warn=pytest.fail
    )
    rounds = Reconciler(store, DesiredState(paths=[path]), recorder=recorder, dry_run=False, allow_invalid=False)
    rounds.round()
    before = store.groups()
    store.replace_groups([Group(name="payments", members=(GroupMember(user="me"),))], expected=before)
    result = rounds.round().result
    assert result is not None
    assert store.groups() == before
    assert rounds.figures["drift"] == len(result.declared.groups.changes) == 6
    assert rounds.round().result.declared.groups.changes == ()  # type: ignore[union-attr]
    store.close()


def test_groups_are_no_entities_to_alter_and_migrate_says_what_it_leaves(desk: QuotaDesk) -> None:
    code, _, err = desk.run("alter", "--entity-type", "groups", "--entity-name", "a", "--add-config", "x=1")
    assert (code, "hint: groups are declared in files: kafka-quotas apply FILE" in err) == (2, True)
    desk.run("apply", desk.file(BOTH))
    _, _, err = run_cli("migrate", "--from", desk.url, "--to", f"local:{desk.folder}/other.db")
    assert "2 groups not copied, payments for example" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", ""), "the name of a file is empty"),
        (("--policy", "p.toml", "--context", "a", "--context", "b"), "--policy is the file of one daemon"),
    ],
)
def test_a_policy_file_that_can_not_be_meant_is_refused(
    desk: QuotaDesk, options: tuple[str, ...], message: str
) -> None:
    code, _, err = desk.run("apply", desk.file(BOTH), *options)
    assert (code, err.splitlines()[0], desk.quotas()) == (2, f"error: {message}", {})


def test_what_explains_groups_knows_those_of_the_store_and_of_files(desk: QuotaDesk) -> None:
    path = desk.file(BOTH)
    desk.run("apply", path)
    assert "payments/checkout: guaranteed producer_byte_rate 20 MiB/s" in desk.run("tree")[1]
    effective = desk.run("describe", "--effective", "--user", "checkout", "--client", "web")[1]
    assert "in group payments/checkout" in effective
    policy = desk.file('[[group]]\nname = "payments"\n', "policy.toml")
    for argv in (("doctor", "--policy", policy), ("doctor", path, "--policy", policy)):
        store = ("--store", desk.url) if argv[1] != path else ()
        assert "it is declared twice" in run_cli(*argv, *store)[1]
