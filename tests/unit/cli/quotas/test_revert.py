"""`revert` through the command line: list, propose, undo, and what is due."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.quota_desk import QuotaDesk
from tests.support.processes.run_cli import run_cli

from kafka_quotas.stores.files.journal import JournalEntry

RATE = "producer_byte_rate"


class Desk(QuotaDesk):
    """A store and a journal of one test."""

    def set(self, user: str, value: str, *options: str) -> None:
        code, _, err = self.run(
            "alter", "--store", self.url, "--user", user, "--add-config", f"{RATE}={value}", *options
        )
        assert code == 0, err

    def stored(self) -> dict[str, float]:
        return {entity.removeprefix("user "): quotas[RATE] for entity, quotas in self.quotas().items()}

    def was_written(self) -> bool:
        return Path(self.url.removeprefix("local:")).exists()

    def entries(self) -> tuple[JournalEntry, ...]:
        return self.journal.read().entries

    def move_back(self, hours: int) -> None:
        """Everything in the journal happened earlier, and was to last until earlier."""
        entries = self.entries()
        self.journal.path.unlink()
        for entry in entries:
            until = None if entry.undo_at_ms is None else entry.undo_at_ms - hours * 3_600_000
            self.journal.append(
                JournalEntry(
                    entry_id=entry.entry_id,
                    time_ms=entry.time_ms - hours * 3_600_000,
                    command=entry.command,
                    user=entry.user,
                    store_url=entry.store_url,
                    changes=entry.changes,
                    reason=entry.reason,
                    undo_at_ms=until,
                    reverts=entry.reverts,
                )
            )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_lists_the_journal(desk: Desk) -> None:
    desk.set("alice", "10MiB", "--reason", "ticket 42")
    desk.set("bob", "5", "--for", "2h")
    code, out, err = desk.run("revert", "--list", "--output", "json")
    first, second = json.loads(out)["entries"]
    assert (code, err, json.loads(out)["schema"]) == (0, "", "kafka-quotas.journal/1")
    assert set(first) == {
        *("id", "time", "command", "by", "store", "changes", "reason", "undo_at", "reverts", "reverted", "confirmed"),
        "groups",
    }
    assert first["changes"] == [{"entity": {"user": "alice"}, "key": RATE, "old": None, "new": 10485760}]
    assert (first["reason"], first["undo_at"], first["reverted"]) == ("ticket 42", None, False)
    assert second["undo_at"] is not None
    table = desk.run("revert", "--list", "--limit", "1")[1]
    assert ("user bob: producer_byte_rate not set -> 5 B/s" in table, "alice" in table) == (True, False)


def test_an_empty_journal_is_told_and_a_damaged_one_is_warned_of(desk: Desk) -> None:
    assert desk.run("revert", "--list")[2] == f"note: nothing is in the journal {desk.journal.path}\n"
    desk.set("alice", "1")
    with desk.journal.path.open("a") as file:
        file.write("rubbish\n")
    assert desk.run("revert", "--list")[2].startswith("warning: 1 damaged line of the journal")


def test_proposes_the_opposite_and_changes_nothing(desk: Desk) -> None:
    desk.set("alice", "1")
    desk.set("alice", "2")
    code, out, err = desk.run("revert", "last", "--output", "json")
    document: dict[str, Any] = json.loads(out)
    assert (code, document["schema"], document["store"]) == (0, "kafka-quotas.revert/1", desk.url)
    assert document["changes"] == [{"entity": {"user": "alice"}, "key": RATE, "old": 2, "new": 1, "state": "to undo"}]
    assert "nothing was changed" in err
    assert desk.stored() == {"alice": 2}


def test_undoes_with_yes_and_what_was_undone_can_be_undone(desk: Desk) -> None:
    desk.set("alice", "1")
    code, out, _ = desk.run("revert", "last", "--yes", "--reason", "mistake", "--output", "json")
    assert (code, desk.stored()) == (0, {})
    assert [change["state"] for change in json.loads(out)["changes"]] == ["undone"]
    first, second = desk.entries()
    assert (second.reverts, second.reason, second.command) == (first.entry_id, "mistake", "revert")
    assert json.loads(desk.run("revert", "--list", "-o", "json")[1])["entries"][0]["reverted"] is True
    assert desk.run("revert", "last", "--yes")[0] == 0
    assert desk.stored() == {"alice": 1}
    code, _, err = desk.run("revert", first.entry_id)
    assert (code, err) == (0, "note: nothing was changed; --yes undoes it, --out FILE keeps it as a plan\n")


def test_what_changed_since_is_flagged_and_refused_unless_forced(desk: Desk, tmp_path: Path) -> None:
    desk.set("alice", "1")
    first = desk.entries()[0].entry_id
    desk.set("alice", "2")
    code, out, err = desk.run("revert", first, "--output", "json")
    assert (code, [change["state"] for change in json.loads(out)["changes"]]) == (0, ["changed since"])
    assert err.startswith("warning: 1 quota changed since")
    code, _, err = desk.run("revert", first, "--yes")
    assert (code, desk.stored()) == (1, {"alice": 2})
    assert err.startswith("error: 1 of the quotas have changed since; nothing was undone\n")
    code, _, err = desk.run("revert", first, "--out", str(tmp_path / "plan.json"))
    assert (code, (tmp_path / "plan.json").exists()) == (1, False)
    assert desk.run("revert", first, "--yes", "--force")[0] == 0
    assert desk.stored() == {}


def test_nothing_left_to_undo_is_told(desk: Desk) -> None:
    desk.set("alice", "1")
    desk.run("alter", "--store", desk.url, "--user", "alice", "--delete-config", RATE)
    code, _, err = desk.run("revert", desk.entries()[0].entry_id)
    assert (code, err) == (0, "note: nothing is left to undo\n")


def test_keeps_the_opposite_as_a_plan(desk: Desk, tmp_path: Path) -> None:
    desk.set("alice", "1")
    plan = tmp_path / "plan.json"
    code, _, err = desk.run("revert", "last", "--out", str(plan))
    document = json.loads(plan.read_text())
    assert (code, err, document["schema"], document["store"]) == (0, "", "kafka-quotas.plan/1", desk.url)
    assert document["changes"] == [{"entity": {"user": "alice"}, "key": RATE, "old": 1, "new": None}]
    code, _, err = desk.run("revert", "last", "--out", str(tmp_path / "missing" / "plan.json"))
    assert (code, err.startswith("error: cannot write")) == (1, True)


def test_what_is_due_is_undone_once_and_quietly(desk: Desk) -> None:
    desk.set("alice", "1")
    desk.set("alice", "2", "--for", "2h", "--reason", "batch load")
    assert desk.run("revert", "--due") == (0, "", "")
    assert desk.stored() == {"alice": 2}
    desk.move_back(hours=3)
    code, out, err = desk.run("revert", "--due", "--output", "json")
    assert (code, err, desk.stored()) == (0, "", {"alice": 1})
    assert json.loads(out) == {
        "schema": "kafka-quotas.undone/1",
        "changes": [{"store": desk.url, "entity": {"user": "alice"}, "key": RATE, "old": 2, "new": 1}],
    }
    assert desk.run("revert", "--due") == (0, "", "")


def test_changes_on_top_of_one_another_end_where_they_began(desk: Desk) -> None:
    desk.set("alice", "1")
    desk.set("alice", "2", "--for", "1h")
    desk.set("alice", "3", "--for", "2h")
    desk.move_back(hours=3)
    assert desk.run("revert", "--due")[0] == 0
    assert desk.stored() == {"alice": 1}


def test_what_somebody_else_changed_is_left_alone_and_told_once(desk: Desk) -> None:
    desk.set("alice", "2", "--for", "1h")
    desk.set("bob", "2", "--for", "1h")
    desk.move_back(hours=2)
    other = {"KAFKA_QUOTAS_JOURNAL": "/dev/null"}
    run_cli("alter", "--store", desk.url, "--user", "alice", "--add-config", f"{RATE}=7", environment=other)
    code, _, err = desk.run("revert", "--due")
    assert (code, desk.stored()) == (0, {"alice": 7})
    assert err == f"note: left alone, changed since: {RATE} of user alice in {desk.url} is 7 B/s\n"
    assert desk.run("revert", "--due") == (0, "", "")


def test_a_change_that_stays_takes_the_time_limit_away(desk: Desk) -> None:
    desk.set("alice", "2", "--for", "1h")
    desk.set("alice", "2")
    desk.move_back(hours=2)
    assert desk.run("revert", "--due") == (0, "", "")
    assert desk.stored() == {"alice": 2}


def test_a_store_that_cannot_be_opened_does_not_hinder_the_others(desk: Desk, tmp_path: Path) -> None:
    desk.set("alice", "2", "--for", "1h")
    gone = Desk(tmp_path / "gone")
    (tmp_path / "gone").mkdir()
    gone.environment = desk.environment
    gone.set("alice", "2", "--for", "1h")
    desk.move_back(hours=2)
    (tmp_path / "gone" / "quotas.db").write_text("no database, and long enough not to be taken for an empty one")
    code, _, err = desk.run("revert", "--due")
    assert (code, desk.stored()) == (1, {})
    assert err.startswith(f"warning: nothing was undone in local:{tmp_path}/gone/quotas.db: ")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ((), "name one entry to undo"),
        (("x", "--list"), "name one entry to undo"),
        (("--list", "--due"), "name one entry to undo"),
        (("--due", "--force"), "--out and --force are for one entry"),
        (("nope",), "the journal has no entry 'nope'"),
    ],
)
def test_what_cannot_be_meant_is_refused(desk: Desk, argv: tuple[str, ...], told: str) -> None:
    code, out, err = desk.run("revert", *argv)
    assert (code, out) == (2, "")
    assert told in err.splitlines()[0]


@pytest.mark.parametrize("length", ["0s", "2", "500ms", "9000h", "soon"])
def test_a_change_lasts_between_a_second_and_a_year(desk: Desk, length: str) -> None:
    options = ("--store", desk.url, "--user", "a", "--add-config", f"{RATE}=1", "--for", length)
    code, out, err = desk.run("alter", *options)
    assert (code, out, desk.was_written()) == (2, "", False)
    assert err.startswith("error: ")


def test_an_empty_reason_is_an_unset_variable(desk: Desk) -> None:
    code, _, err = desk.run("alter", "--user", "a", "--add-config", f"{RATE}=1", "--reason", "")
    assert (code, err.splitlines()[0], desk.was_written()) == (2, "error: --reason is empty", False)


@pytest.fixture
def elsewhere(desk: Desk, tmp_path: Path) -> Desk:
    """Another store with the journal of `desk`, changed after it."""
    other = Desk(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.environment, other.journal = desk.environment, desk.journal
    desk.set("alice", "1")
    other.set("dave", "2", "--reason", "trial")
    return other


def test_last_is_the_last_change_of_the_store_in_use(desk: Desk, elsewhere: Desk) -> None:
    code, out, _ = desk.run("revert", "last", "--yes")
    assert (code, desk.stored(), elsewhere.stored()) == (0, {}, {"dave": 2})
    assert out.splitlines()[0].startswith(f"{desk.entries()[0].entry_id}, alter by ")
    assert out.splitlines()[0].endswith(f"Z in {desk.url}")


def test_last_takes_the_options_that_every_command_takes(desk: Desk, elsewhere: Desk) -> None:
    code, out, err = desk.run("revert", "last", "--store", elsewhere.url)
    assert (code, err) == (0, "note: nothing was changed; --yes undoes it, --out FILE keeps it as a plan\n")
    head, titles, _, row = out.splitlines()
    assert head.endswith(f" in {elsewhere.url}: trial")
    assert titles.split() == ["entity", "key", "current", "after", "revert", "state"]
    assert row.split() == ["user", "dave", RATE, "2", "B/s", "not", "set", "to", "undo"]
    named = json.loads(desk.run("revert", "last", "--store", elsewhere.url, "-o", "json")[1])
    change = desk.entries()[1]
    assert (named["by"], named["command"], named["reason"]) == (change.user, "alter", "trial")


def test_a_change_of_another_store_needs_its_id(desk: Desk, elsewhere: Desk, tmp_path: Path) -> None:
    newest = desk.entries()[1].entry_id
    code, out, err = desk.run("revert", "last", "--yes", store=f"local:{tmp_path}/third.db")
    assert (code, out, desk.stored(), elsewhere.stored()) == (2, "", {"alice": 1}, {"dave": 2})
    assert err.splitlines() == [
        f"error: the journal has no change of local:{tmp_path}/third.db",
        f"hint: the last change is {newest}, of {elsewhere.url}: kafka-quotas revert {newest}",
    ]
    code, _, err = desk.run("revert", newest, "--yes", "--store", desk.url)
    assert (code, err.splitlines()[0]) == (2, f"error: {newest} is a change of {elsewhere.url}, not of {desk.url}")
    assert desk.run("revert", newest, "--yes")[0] == 0
    assert (desk.stored(), elsewhere.stored()) == ({"alice": 1}, {})


def test_one_store_has_several_addresses(desk: Desk, tmp_path: Path) -> None:
    desk.set("alice", "1")
    (tmp_path / "link").symlink_to(tmp_path)
    assert desk.run("revert", "last", "--store", f"local:{tmp_path}/link/quotas.db", "--yes")[0] == 0
    assert desk.stored() == {}


def test_the_list_and_what_is_due_are_of_all_stores_or_of_one(desk: Desk, elsewhere: Desk) -> None:
    listed = json.loads(desk.run("revert", "--list", "--store", elsewhere.url, "-o", "json")[1])["entries"]
    assert [entry["store"] for entry in listed] == [elsewhere.url]
    assert len(json.loads(desk.run("revert", "--list", "-o", "json")[1])["entries"]) == 2
    for each in (desk, elsewhere):
        each.set("zoe", "3", "--for", "1h")
    desk.move_back(hours=2)
    assert desk.run("revert", "--due", "--store", elsewhere.url)[0] == 0
    assert (desk.stored(), elsewhere.stored()) == ({"alice": 1, "zoe": 3}, {"dave": 2})
    assert desk.run("revert", "--due", "--yes")[0] == 0  # as the shipped unit for systemd runs it
    assert desk.stored() == {"alice": 1}
