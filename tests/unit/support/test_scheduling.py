"""Turns of tests in several processes: those that measure run beside each other only."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.processes.scheduling import MEASURING, Turns, files_from_another, group_of, in_order


def item(name: str, *, marker: str | None = None) -> Any:
    return SimpleNamespace(
        get_closest_marker=lambda asked: asked == marker or None, path=Path(name), name=f"{name} {marker}"
    )


MEASURED, OTHER = item("a", marker=MEASURING), item("b")


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
