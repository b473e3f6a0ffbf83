"""The local store's own promises: no file before the first change, and one clear error for every broken file."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.errors import KafkaQuotasError, StoreError, StoreRefusedError, StoreUnreachableError, UsageError
from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.local import SCHEMA_VERSION, LocalStore
from kafka_quotas.stores.store import Alteration, Polling, QuotaEntry

ALICE = Entity.of(user="alice")
MANY = [
    Alteration(entity=Entity.of(user=f"user {number}"), changes={"producer_byte_rate": 1.0}) for number in range(2000)
]
NOBODY_ID = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quotas.db"


@contextmanager
def opened(path: Path, **arguments: object) -> Iterator[LocalStore]:
    with closing(LocalStore(path, **arguments)) as store:  # type: ignore[arg-type]
        yield store


def put(store: LocalStore, value: float | None = 1000.0, entity: Entity = ALICE) -> None:
    (result,) = store.alter([Alteration(entity=entity, changes={"producer_byte_rate": value})])
    assert result.error is None


@contextmanager
def without_privileges() -> Iterator[None]:
    """As nobody, where the tests run as root, for whom nothing is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY_ID)
    try:
        yield
    finally:
        os.seteuid(0)


def refused(store: LocalStore) -> KafkaQuotasError:
    with pytest.raises(StoreError) as caught:
        store.alter([Alteration(entity=ALICE, changes={"producer_byte_rate": 1.0})])
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_reading_and_trying_leave_no_file(path: Path) -> None:
    with opened(path) as store:
        assert store.describe(EVERYTHING) == []
        assert store.watch(None, timeout_s=0) is not None
        store.alter([Alteration(entity=ALICE, changes={"producer_byte_rate": 1.0})], validate_only=True)
        store.alter([Alteration(entity=ALICE, changes={"producer_byte_rate": -1.0})])
    assert not path.exists()


def test_one_file_is_left_behind(path: Path) -> None:
    with opened(path) as store:
        put(store)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_users_own_folder_is_made_and_no_other(tmp_path: Path) -> None:
    with opened(tmp_path / "a" / "b" / "quotas.db") as store:
        assert "mkdir -p" in (refused(store).hint or "")
    with opened(tmp_path / "a" / "b" / "quotas.db", make_folder=True) as store:
        put(store)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0


def test_an_unchanged_value_leaves_the_revision(path: Path) -> None:
    with opened(path) as store:
        put(store)
        before = store.watch(None, timeout_s=0)
        assert before is not None
        put(store)
        put(store, None, Entity.of(user="nobody"))
        assert store.watch(before.revision, timeout_s=0) is None
        put(store, 1001.0)
        after = store.watch(before.revision, timeout_s=0)
    assert after is not None
    assert after.entries == (QuotaEntry(entity=ALICE, quotas={"producer_byte_rate": 1001.0}),)


def test_a_file_put_in_its_place_is_noticed(path: Path) -> None:
    with opened(path) as store, opened(path.with_name("other.db")) as other:
        put(store)
        put(other, 5.0)
        other.close()
        path.with_name("other.db").replace(path)
        assert "replaced while it was in use" in refused(store).message  # its log would be mixed into the new file
        path.with_name(f"{path.name}-wal").unlink()
        assert store.describe(EVERYTHING) == [QuotaEntry(entity=ALICE, quotas={"producer_byte_rate": 5.0})]


def test_a_file_that_goes_and_comes_again_is_followed(path: Path) -> None:
    with opened(path) as store:
        put(store)
        before = store.watch(None, timeout_s=0)
        assert before is not None
        path.unlink()
        gone = store.watch(before.revision, timeout_s=0)
        assert gone is not None
        assert gone.entries == ()
        put(store, 7.0)
        assert store.describe(EVERYTHING) == [QuotaEntry(entity=ALICE, quotas={"producer_byte_rate": 7.0})]


def test_watch_waits_no_longer_than_it_is_told(path: Path) -> None:
    now_s, pauses = [0.0], []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        now_s[0] += seconds
        return False

    with opened(path, polling=Polling(0.05, monotonic_s=lambda: now_s[0], pause=pause)) as store:
        before = store.watch(None, timeout_s=0)
        assert before is not None
        assert store.watch(before.revision, timeout_s=0.12) is None
    assert pauses == pytest.approx([0.05, 0.05, 0.02])


def test_an_empty_file_is_an_empty_store(path: Path) -> None:
    path.touch()
    with opened(path) as store:
        assert store.describe(EVERYTHING) == []
        put(store)
        assert len(store.describe(EVERYTHING)) == 1


@pytest.mark.parametrize(
    "content", [b"no database, but long enough to have a header of one hundred bytes" * 9, b"short"]
)
def test_another_kind_of_file_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with opened(path) as store:
        assert "damaged or no store" in refused(store).message
        with pytest.raises(StoreError, match="damaged or no store"):
            store.describe(EVERYTHING)
    assert path.read_bytes() == content


def test_a_damaged_store_is_reported(path: Path) -> None:
    with opened(path) as store:
        store.alter(MANY)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with opened(path) as store, pytest.raises(StoreError, match="damaged") as caught:
        store.describe(EVERYTHING)
    assert "recover" in (caught.value.hint or "")


def test_another_programs_database_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE quota (theirs)")
    with opened(path) as store:
        assert isinstance(refused(store), StoreRefusedError)
        with pytest.raises(StoreRefusedError, match="some other SQLite database"):
            store.describe(EVERYTHING)


def test_a_newer_schema_is_refused(path: Path) -> None:
    with opened(path) as store:
        put(store)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with opened(path) as store:
        assert "newer kafka-quotas" in refused(store).message


def test_a_full_disk_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store:
        put(store)

    def connect_to_small_disk(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = original(*arguments, **options)  # type: ignore[call-overload]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {max(pages, 1)}")
        return connection  # type: ignore[no-any-return]

    original = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect_to_small_disk)
    with opened(path) as store:
        with pytest.raises(StoreError, match="no space left") as caught:
            store.alter(MANY)
        assert caught.value.hint
        assert store.describe(EVERYTHING) == [QuotaEntry(entity=ALICE, quotas={"producer_byte_rate": 1000.0})]


def test_a_limit_of_file_sizes_is_named_where_it_is_met(path: Path) -> None:
    code = (
        "import resource, sys; from kafka_quotas.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY)); sys.exit(main(sys.argv[1:]))"
    )
    change = ("alter", "--store", f"local:{path}", "--user", "a", "--add-config", "producer_byte_rate=1MB")
    done = subprocess.run([sys.executable, "-c", code, *change], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "hint: this process may not write files of more than 1024 bytes; ulimit -f raises that" in done.stderr
    assert list(path.parent.iterdir()) == [], "no empty store is left, which would read as one without quotas"


@pytest.mark.parametrize("folder_mode", [0o755, 0o555])
def test_a_read_only_store_can_be_read(folder_mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quotas.db")
        with opened(path) as store:
            put(store)
        path.chmod(0o444)
        Path(folder).chmod(folder_mode)
        with without_privileges(), opened(path) as store:
            assert len(store.describe(EVERYTHING)) == 1
            assert isinstance(refused(store), StoreRefusedError)
            assert "read-only" in refused(store).message
        Path(folder).chmod(0o755)


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert isinstance(refused(store), StoreUnreachableError)


def test_a_held_lock_is_waited_for_and_then_reported(path: Path) -> None:
    with opened(path, settings=StoreSettings(timeout_s=0.05)) as store:
        put(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert "kept the local store locked" in refused(store).message
            assert len(store.describe(EVERYTHING)) == 1  # readers don't wait
            other.execute("ROLLBACK")
        put(store, 2.0)


def test_a_path_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%20\u00e9.db"
    with opened(path) as store:
        put(store)
    assert path.exists()


_NOTHING_CAN_GROW = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from kafka_quotas.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_store_is_read_and_not_changed_where_no_file_can_grow(tmp_path: Path) -> None:
    """As on a full disk: the files of the write-ahead log can't be made."""
    at = ("--store", f"local:{tmp_path}/q.db", "--user", "alice")
    assert run_cli("alter", *at, "--add-config", "producer_byte_rate=1000000")[0] == 0

    def full(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", _NOTHING_CAN_GROW, *arguments]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KAFKA_QUOTAS_JOURNAL": "/dev/null"},
        )

    described = full("describe", *at, "--output", "csv")
    assert described.returncode == 0, described.stderr
    assert "producer_byte_rate,1000000" in described.stdout
    altered = full("alter", *at, "--add-config", "producer_byte_rate=2000000")
    assert (altered.returncode, altered.stdout) == (1, "")
    assert altered.stderr.splitlines()[0].startswith("error: no space left for the local store, nothing was changed")
    assert altered.stderr.splitlines()[1:] == ["hint: free some space"]
    assert "1000000" in run_cli("describe", *at)[1]


TEAM = Group(name="team", producer_byte_rate=9e6)
APP = Group(name="team/app", members=(GroupMember(user="é\n"),), guaranteed=GroupRates(producer_byte_rate=5e6))


def test_groups_are_kept_beside_the_entries_and_a_watch_sees_them_change(path: Path) -> None:
    with opened(path) as store, opened(path) as other:
        assert store.groups() == ()
        store.replace_groups([TEAM, APP], expected=[])
        put(store)
        seen = other.watch(None, timeout_s=0)
        assert seen is not None
        assert (seen.groups, len(seen.entries), other.groups()) == ((TEAM, APP), 1, (TEAM, APP))
        store.replace_groups([APP, TEAM], expected=[TEAM, APP])
        changed = other.watch(seen.revision, timeout_s=0)
        assert changed is not None
        assert (changed.groups, changed.entries) == ((APP, TEAM), seen.entries)
        store.replace_groups([APP, TEAM], expected=[TEAM])
        assert other.watch(changed.revision, timeout_s=0) is None, "the same groups are no change"


def test_groups_that_do_not_fit_or_that_somebody_has_changed_are_not_replaced(path: Path) -> None:
    with opened(path) as store:
        store.replace_groups([TEAM], expected=[])
        with pytest.raises(UsageError, match="there is no group other around it"):
            store.replace_groups([Group(name="other/app")], expected=[TEAM])
        with pytest.raises(StoreRefusedError, match="the groups have changed since they were read"):
            store.replace_groups([TEAM, APP], expected=[])
        assert store.groups() == (TEAM,)


def test_a_store_without_groups_has_the_tables_of_older_releases(path: Path) -> None:
    with opened(path) as store:
        put(store)
        store.replace_groups([], expected=[])
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(tables).fetchall() == [("quota",), ("store",)]


def test_damaged_groups_are_one_clear_error(path: Path) -> None:
    with opened(path) as store:
        store.replace_groups([TEAM], expected=[])
        for change in ("UPDATE client_groups SET document = '[{}]'", "DELETE FROM client_groups"):
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(change)
            with pytest.raises(StoreError, match="are damaged") as caught:
                store.watch(None, timeout_s=0)
            assert "DROP TABLE" in (caught.value.hint or "")


def test_no_group_is_written_to_a_store_of_kafkas_own_configuration(tmp_path: Path) -> None:
    for url in (f"static:{tmp_path}/x", "kafka://127.0.0.1:1", "zk://127.0.0.1:1"):
        with closing(open_store(url)) as store:
            assert store.groups() == ()
            with pytest.raises(UsageError, match="Kafka has no groups, so this store can't hold group team"):
                store.replace_groups([TEAM], expected=[])
