"""Turns of tests in several processes: those that measure run beside each other only."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from tests.support.processes.scheduling import MEASURING, FilesTogether, Turns, files_from_another, group_of, in_order


def item(name: str, *, marker: str | None = None) -> Any:
    return SimpleNamespace(
        get_closest_marker=lambda asked: asked == marker or None, path=Path(name), name=f"{name} {marker}"
    )


MEASURED, OTHER, COMPUTING = item("a", marker=MEASURING), item("b"), item("tests/unit/c")


@pytest.mark.parametrize(("first", "second"), [(MEASURED, OTHER), (OTHER, MEASURED)])
def test_one_kind_waits_until_all_of_the_other_have_left(tmp_path: Path, first: Any, second: Any) -> None:
    seen: list[str] = []

    def enter() -> None:
        with Turns().turn(tmp_path, second, None):
            seen.append("entered")

    with ThreadPoolExecutor(2) as pool:
        with Turns().turn(tmp_path, first, None):
            waiting = pool.submit(enter)
            if first is MEASURED:  # who comes to measure meanwhile does not wait for who waits
                with Turns().turn(tmp_path, first, None):
                    seen.append("beside")
            seen.append("leaves")
        waiting.result(timeout=60)
    assert seen == (["beside"] if first is MEASURED else []) + ["leaves", "entered"]


def test_a_process_measures_at_one_stretch(tmp_path: Path) -> None:
    seen: list[str] = []
    turns = Turns()

    def enter() -> None:
        with Turns().turn(tmp_path, OTHER, None):
            seen.append("entered")

    with ThreadPoolExecutor(1) as pool:
        with turns.turn(tmp_path, MEASURED, MEASURED):
            waiting = pool.submit(enter)
        with turns.turn(tmp_path, MEASURED, OTHER):
            seen.append("second")
        waiting.result(timeout=60)
    assert seen == ["second", "entered"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may leave the idle class of the scheduler again")
def test_what_only_computes_steps_back_while_somebody_measures(tmp_path: Path) -> None:
    with Turns().turn(tmp_path, COMPUTING, None):
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
    with Turns().turn(tmp_path, MEASURED, None), Turns().turn(tmp_path, COMPUTING, None):
        assert os.sched_getscheduler(0) == os.SCHED_IDLE
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_a_process_more_than_groups_takes_what_only_computes(pytestconfig: pytest.Config) -> None:
    processes = [mock.Mock(shutting_down=False) for _ in range(2)]
    config: Any = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=None), rootpath=pytestconfig.rootpath, getvalue=lambda _: ["2*popen"]
    )
    scheduler = FilesTogether(config, None, groups=[{"/docs/test_words"}])
    tests = ["tests/docs/test_words.py", "tests/chaos/test_kills.py", "tests/property/test_wire_parsers.py"]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, [f"{test}::test_{n}" for test in tests for n in range(3)])
    scheduler.schedule()
    assert [process.send_runtest_some.call_args.args for process in processes] == [([0, 1, 2],), ([6, 7, 8],)]


def test_groups_come_first_and_in_them_what_measures(tmp_path: Path) -> None:
    (tmp_path / "with").write_text("kafka4")
    (tmp_path / "without").write_text("")
    rest, late, early = (
        item(str(tmp_path / "without")),
        item(str(tmp_path / "with")),
        item(str(tmp_path / "with"), marker=MEASURING),
    )
    assert in_order([rest, late, early], [{"kafka4"}]) == [early, late, rest]


@pytest.mark.parametrize(("name", "text", "group"), [("a", "two", "group 1"), ("b", "two", "group 0"), ("c", "", "")])
def test_a_file_is_in_the_first_group_that_has_its_name_or_a_word_of_it(
    tmp_path: Path, name: str, text: str, group: str
) -> None:
    (tmp_path / name).write_text(text)
    assert group_of(tmp_path / name, [{"/b\n"}, {"two"}]) == group


def test_processes_collect_all_files_each_from_another_on_and_run_them_in_one_order(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text("")
    orders = [[Path(file).name[5] for file in files_from_another(tmp_path, process, 3)] for process in range(3)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    items = [item(str(tmp_path / f"test_{name}.py")) for name in "abc"]
    assert in_order(items[1:] + items[:1], []) == items
