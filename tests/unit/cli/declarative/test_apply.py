"""export, validate, diff and apply from the command line, on a local store."""

import csv
import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes.quota_desk import QuotaDesk
from tests.support.stores.memory_store import MemoryStore

from kafka_quotas.cli.declarative.apply import report_failures
from kafka_quotas.cli.output.render import progress_bar
from kafka_quotas.commands.declarative.apply import ApplyResult, DeclaredPlan, DesiredState, Failure, HowToApply, apply
from kafka_quotas.commands.declarative.groups import GroupPlan
from kafka_quotas.commands.quotas.alter import next_chunk
from kafka_quotas.core.changes.plan import Plan
from kafka_quotas.core.errors import StoreError, StoreUnreachableError, VerdictError
from kafka_quotas.core.model.entity import Entity

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
TWO = """
- {entity: {user: alice}, quotas: {producer_byte_rate: 10MiB, consumer_byte_rate: 2M}}
- {entity: {user: null}, quotas: {producer_byte_rate: 1M}}
"""


@pytest.fixture
def desk(tmp_path: Path) -> QuotaDesk:
    return QuotaDesk(tmp_path)


def test_apply_makes_it_so_and_a_second_time_there_is_nothing_to_do(desk: QuotaDesk) -> None:
    path = desk.file(TWO)
    code, out, err = desk.run("apply", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"Made 3 changes to 2 entities in {desk.url}."
    assert desk.quotas() == {"user alice": {PRODUCE: 10485760.0, CONSUME: 2e6}, "default user": {PRODUCE: 1e6}}
    assert desk.run("apply", path) == (0, f"Nothing to change in {desk.url}.\n", "")
    assert desk.journal.path.read_text().count("\n") == 1


def test_nothing_of_the_daemon_is_loaded_for_quotas_alone(desk: QuotaDesk) -> None:
    store = ["--store", desk.url]
    commands = [[name, desk.file(TWO), *store] for name in ("diff", "apply")]
    commands.append(["describe", "--effective", "--user", "alice", *store])
    code = (
        "import sys\nfrom kafka_quotas.cli.main import main\n"
        f"assert [main(each) for each in {commands!r}] == [0, 0, 0]\n"
        "foreign = ('asyncio', 'http.server', 'http.client', 'tomllib')\n"
        "print([name for name in sys.modules if 'enforcement' in name or name in foreign])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.splitlines()[-1] == "[]"


def test_diff_shows_old_new_and_for_whom_and_changes_nothing(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(TWO))
    changed = desk.file(TWO.replace("10MiB", "5MiB"))
    code, out, err = desk.run("diff", changed)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["mark", "entity", "key", "old", "new"]
    assert out.splitlines()[2].split() == ["~", "user", "alice", PRODUCE, "10", "MiB/s", "5", "MiB/s"]
    (less,) = (line for line in out.splitlines() if line.startswith("user alice, client-id (any other)"))
    assert re.split(r"  +", less)[1:] == ["produce", "10 MiB/s", "5 MiB/s", "less", "user alice"]
    assert out.splitlines()[-1] == "0 to add, 1 to change, 0 to remove; 1 client tightened, 0 loosened"
    assert desk.run("diff", changed, "--exit-code")[0] == 3
    assert desk.quotas()["user alice"][PRODUCE] == 10485760.0
    same = desk.run("diff", desk.file(TWO), "--exit-code")
    assert same == (0, "", f"note: no differences from {desk.url}\n")


def test_diff_in_json_and_csv(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(TWO))
    path = desk.file("- {entity: {user: alice}, quotas: {producer_byte_rate: 5, consumer_byte_rate: null}}")
    assert desk.data("diff", path) == {
        "schema": "kafka-quotas.diff/1",
        "store": desk.url,
        "changes": [
            {"entity": {"user": "alice"}, "key": PRODUCE, "old": 10485760, "new": 5},
            {"entity": {"user": "alice"}, "key": CONSUME, "old": 2000000, "new": None},
        ],
        "affected": [
            {
                "client": {"user": "alice"},
                "key": CONSUME,
                "before": {"limit": 2000000, "entity": {"user": "alice"}},
                "after": {"limit": None, "entity": None},
            },
            {
                "client": {"user": "alice"},
                "key": PRODUCE,
                "before": {"limit": 10485760, "entity": {"user": "alice"}},
                "after": {"limit": 5, "entity": {"user": "alice"}},
            },
        ],
        "combinations_left_out": 0,
        "left_alone": [{"entity": {"user": None}, "keys": [PRODUCE], "declared": False}],
        "not_owned": [],
        "groups": None,
    }
    rows = list(csv.DictReader(io.StringIO(desk.run("diff", path, "-o", "csv")[1])))
    assert {name: text for name, text in rows[1].items() if text} == {"user": "alice", "key": CONSUME, "old": "2000000"}


def test_what_is_not_declared_is_reported_and_left_alone_unless_pruned(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(TWO))
    path = desk.file("- {entity: {user: alice}, quotas: {producer_byte_rate: 10MiB}}")
    code, out, err = desk.run("apply", path)
    assert (code, out) == (0, f"Nothing to change in {desk.url}.\n")
    assert err.splitlines() == [
        "note: left alone, not declared: default user; --prune removes them",
        f"note: left alone on user alice: {CONSUME}; --prune or a value of null removes it",
    ]
    code, out, err = desk.run("apply", path, "--prune")
    assert code == 1
    assert err.startswith("error: this would remove 2 of 3 stored quotas, more than 50 %\n")
    assert len(desk.quotas()) == 2
    code, out, err = desk.run("apply", path, "--prune", "--prune-limit", "70")
    assert (code, err) == (0, "")
    assert desk.quotas() == {"user alice": {PRODUCE: 10485760.0}}


def test_an_empty_input_never_prunes(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(TWO))
    code, _, err = desk.run("apply", desk.file("[]"), "--prune", "--prune-limit", "100")
    assert code == 2
    assert err.startswith("error: no quotas are declared in ")
    assert len(desk.quotas()) == 2


def test_a_selector_limits_what_a_file_owns(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(TWO))
    path = desk.file(
        "- {entity: {user: a1}, quotas: {producer_byte_rate: 1}}\n"
        "- {entity: {ip: null}, quotas: {connection_creation_rate: 1}}"
    )
    code, _, err = desk.run("apply", path, "--prune", "--selector", "user=a[0-9]")
    assert code == 0
    assert err == "note: left alone, declared but not named by --selector: default ip\n"
    assert sorted(desk.quotas()) == ["default user", "user a1", "user alice"]
    code, _, err = desk.run("apply", path, "--selector", "client-id")
    assert code == 2
    assert "names no declared entity" in err


def test_a_plan_is_carried_out_once_and_refused_when_the_store_has_changed(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(TWO))
    plan = str(desk.folder / "plan.json")
    desk.run("diff", desk.file("- {entity: {user: bob}, quotas: {producer_byte_rate: 7}}"), "--out", plan)
    desk.run("alter", "--user", "carol", "--add-config", f"{PRODUCE}=1")
    code, _, err = desk.run("apply", plan)
    assert code == 1
    assert err.startswith("error: the store has changed since the plan was made")
    assert "user bob" not in desk.quotas()
    desk.run("alter", "--user", "carol", "--delete-config", PRODUCE)
    assert desk.run("apply", plan)[0] == 0
    assert desk.quotas()["user bob"] == {PRODUCE: 7.0}
    assert desk.run("apply", plan) == (0, f"Nothing to change in {desk.url}.\n", "")


def test_a_plan_is_for_its_own_store_and_takes_no_options_of_diff(desk: QuotaDesk) -> None:
    plan = str(desk.folder / "plan.json")
    desk.run("diff", desk.file(TWO), "--out", plan)
    code, _, err = desk.run("apply", plan, "--store", f"local:{desk.folder / 'other.db'}")
    assert code == 2
    assert err.startswith(f"error: the plan was made for {desk.url}, not for ")
    code, _, err = desk.run("apply", plan, "--prune")
    assert (code, err.splitlines()[0]) == (2, "error: --prune: not with a plan")


def test_a_dry_run_checks_tells_for_whom_and_writes_nothing(desk: QuotaDesk) -> None:
    code, out, _ = desk.run("apply", desk.file(TWO), "--dry-run")
    assert code == 0
    assert "user alice, client-id (any other)" in out
    assert out.splitlines()[-1] == f"Dry run: would make 3 changes to 2 entities in {desk.url}."
    assert desk.quotas() == {}
    assert not desk.journal.path.exists()


def test_invalid_entries_need_a_word_and_a_store_that_takes_them(desk: QuotaDesk) -> None:
    path = desk.file("- {entity: {user: a}, quotas: {producer_byte_rate: 0}, invalid: true}")
    code, _, err = desk.run("apply", path)
    assert (code, err.splitlines()[0]) == (2, "error: marked invalid or refused: user a")
    code, _, err = desk.run("apply", path, "--allow-invalid")
    assert code == 1
    assert err.splitlines()[:2] == [
        f"failed: user a: {PRODUCE} must be greater than 0",
        "error: 1 of 1 entities failed",
    ]


def test_validate_lists_every_problem(desk: QuotaDesk) -> None:
    assert desk.run("validate", desk.file(TWO)) == (0, "1 file, 2 entities: OK\n", "")
    bad = desk.file("- {entity: {user: 1}, quotas: {}}\n- {entity: {user: a}, quotas: {producer_byte_rate: 0}}")
    code, out, err = desk.run("validate", bad, "-o", "json")
    assert (code, err) == (1, "error: 2 problems in 1 file\n")
    document = json.loads(out)
    assert document["schema"] == "kafka-quotas.validate/1"
    assert [(each["line"], each["message"]) for each in document["problems"]] == [
        (1, "the user name is a number, not a text: 1"),
        (2, f"{PRODUCE} must be greater than 0"),
    ]


def test_the_published_schema_is_the_one_in_the_documentation(desk: QuotaDesk) -> None:
    code, out, err = desk.run("validate", "--schema")
    assert (code, err) == (0, "")
    kept = Path(__file__).parents[4] / "examples" / "quotas.schema.json"
    assert json.loads(out) == json.loads(kept.read_text(encoding="utf-8"))
    assert desk.run("validate", "--schema", "x.yaml")[0] == 2


def test_what_describe_prints_as_json_is_a_file_of_quotas(desk: QuotaDesk) -> None:
    desk.run("apply", desk.file(TWO))
    path = desk.file(desk.run("describe", "-o", "json")[1], "described.json")
    assert desk.run("diff", path, "--exit-code")[0] == 0


def test_no_file_and_an_empty_name_are_refused(desk: QuotaDesk) -> None:
    assert desk.run("diff")[0] == 2
    assert desk.run("apply", "")[0] == 2
    assert desk.run("diff", desk.file(TWO), "--prune-limit", "101")[0] == 2
    assert desk.run("apply", desk.file(TWO), "--metrics", "127.0.0.1:1")[0] == 2
    assert desk.run("apply", desk.file(TWO), "--watch", "0.1")[0] == 2
    assert desk.run("apply", desk.file(TWO), "--watch", str(math.nan))[0] == 2


def _many(desk: QuotaDesk, count: int) -> DesiredState:
    text = "".join(
        f"- {{entity: {{user: u{number:04d}}}, quotas: {{producer_byte_rate: 1}}}}\n" for number in range(count)
    )
    return DesiredState(paths=[desk.file(text)])


def test_what_is_refused_is_listed_and_the_rest_is_done(desk: QuotaDesk) -> None:
    store = MemoryStore(fails={Entity.of(user=name): StoreError("no") for name in ("u0001", "u0003")})
    result = apply(store, _many(desk, 5))
    assert [str(failure.entity) for failure in result.failures] == ["user u0001", "user u0003"]
    assert [str(change.entity) for change in result.made] == ["user u0000", "user u0002", "user u0004"]
    assert len(store.content) == 3


def test_a_store_that_is_lost_in_the_middle_lists_the_rest_and_running_again_finishes(desk: QuotaDesk) -> None:
    steps: list[tuple[int, int]] = []
    store = MemoryStore(writes_left=1)
    desire = _many(desk, 1000)
    result = apply(store, desire, HowToApply(progress=lambda done, total: steps.append((done, total))))
    assert steps == [(100, 1000)]
    assert len(result.failures) == 900
    assert {failure.error.message for failure in result.failures} == {"gone"}
    store.writes_left = 1000
    again = apply(store, desire)
    assert (len(again.made), again.failures) == (900, ())
    assert apply(store, desire).made == ()


def test_chunks_grow_until_the_store_takes_three_seconds_for_one() -> None:
    assert [next_chunk(100, took_s) for took_s in (0.0, 0.01, 0.75, 6.0)] == [1000, 1000, 400, 100]
    assert next_chunk(1000, 6.0) == 500


def test_a_store_that_is_lost_at_once_raises(desk: QuotaDesk) -> None:
    with pytest.raises(StoreUnreachableError, match="gone"):
        apply(MemoryStore(writes_left=0), _many(desk, 2))


def test_what_did_not_show_in_time_was_changed_and_failed(desk: QuotaDesk) -> None:
    result = apply(MemoryStore(unseen=[Entity.of(user="u0001")]), _many(desk, 2))
    assert len(result.made) == 2
    assert [str(failure.entity) for failure in result.failures] == ["user u0001"]


def test_the_progress_bar_waits_a_second_and_needs_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("kafka_quotas.cli.output.render.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("kafka_quotas.cli.output.render.is_terminal", lambda stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("applying") as progress:
        progress(1, 10)
        assert not capsys.readouterr().err
        now_s[0] = 1.5
        progress(2, 10)
    assert "applying" in capsys.readouterr().err
    monkeypatch.setattr("kafka_quotas.cli.output.render.is_terminal", lambda stream: False)
    with progress_bar("applying") as progress:
        now_s[0] = 9.0
        progress(2, 10)
    assert not capsys.readouterr().err


def test_running_again_is_no_advice_after_a_refusal(desk: QuotaDesk) -> None:
    """A static store refuses whatever it is told, however often."""
    for error, advice in (
        (StoreError("no"), "change what was refused"),
        (StoreUnreachableError("gone"), "run it again"),
    ):
        failure = Failure(entity=Entity.of(user="u"), error=error)
        planned = DeclaredPlan(plan=Plan(changes=(), fingerprint=""), stored={}, groups=GroupPlan())
        result = ApplyResult(
            store_url=desk.url, made=(), failures=(failure,), declared=planned, radius=None, dry_run=False
        )
        with pytest.raises(VerdictError) as caught:
            report_failures(result)
        assert (caught.value.hint or "").startswith(advice)
