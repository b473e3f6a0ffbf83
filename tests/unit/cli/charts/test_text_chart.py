"""Charts: what is drawn where, in text and in files."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_quotas.cli.charts.plot import check_plot_targets, save_plot
from kafka_quotas.cli.charts.text_chart import (
    Series,
    Style,
    chart_lines,
    column_values,
    panels,
    print_chart,
)
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import install_extra

RATE = Series(name="rate", points=[(0, 0), (5, 4), (10, 8)], unit="bytes/s", style=Style.AREA)
BOUND = Series(name="bound", points=[(0, 5), (10, 5)], unit="bytes/s", style=Style.LIMIT)
DELAY = Series(name="delay", points=[(5, 2.0)], unit="s", style=Style.BARS)
DEBT = Series(name="tokens", points=[(0, 500), (1, -60), (13, 0)], unit="partitions")


def chart_text(series: Sequence[Series], *, title: str = "", width: int = 80, height: int = 8) -> str:
    lines = chart_lines(series, title=title, width=width, height=height)
    return "\n".join("".join(character for character, _ in line).rstrip() for line in lines)


class TerminalOf(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_chart_shows_rate_bound_and_delay_without_colour() -> None:
    assert chart_text([RATE, BOUND, DELAY], title="Example", width=52, height=4).splitlines() == [
        "Example",
        "█ rate   ╌ bound   [bytes/s]",
        "     8 B/s ┤                                   ▁▁▂▃▄",
        "           ┤╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌",
        "     4 B/s ┤                ▁▂▂▃▄▅▆▇▇███████████████",
        "           ┤ ▁▁▁▁▁▁▂▂▃▄▅▆▆▇█████████████████████████",
        "     0 B/s └────────────────────────────────────────",
        "█ delay   [s]",
        "         2 ┤                    ▄",
        "           ┤                    █",
        "         1 ┤                    █",
        "           ┤                    █",
        "         0 └────────────────────────────────────────",
        "            0 s                5 s              10 s",
    ]


@pytest.mark.parametrize(("level", "label"), [(2, "between"), (2.3, "2.4 B/s"), (3, "between"), (3.4, "3.6 B/s")])
def test_a_limit_is_in_the_row_whose_label_is_nearest(level: float, label: str) -> None:
    limit = Series(name="bound", points=[(0, level), (1, level)], unit="bytes/s", style=Style.LIMIT)
    highest = Series(name="rate", points=[(0, 4.7)], unit="bytes/s")
    (row,) = (line for line in chart_text([highest, limit]).splitlines() if "┤╌" in line)
    assert (row.split("┤")[0].strip() or "between") == label


def test_debt_is_drawn_below_zero_and_zero_has_a_label() -> None:
    text = chart_text([DEBT], width=60, height=10)
    labels = [line.split("┤")[0].strip() for line in text.splitlines() if "┤" in line]
    assert "0" in labels
    marked = [line for line in text.splitlines() if "●" in line and "┤" in line]
    assert marked[0].index("●") < marked[-1].index("●")


@pytest.mark.parametrize("width", [80, 60, 40])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    many = [Series(name=f"client-{index}", points=[(0, 1e9 * index)], unit="bytes/s") for index in range(9)]
    text = chart_text([*many, DELAY], title="x" * 200, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert all(name in text for name in ("client-0", "client-8", "[bytes/s]", "delay   [s]"))


def test_a_column_holds_the_largest_of_its_points_and_limits_hold_until_the_next() -> None:
    crowd = Series(name="rate", points=[(0, 1), (0.1, 9), (0.2, 3), (9.9, 2)], unit="s", style=Style.BARS)
    assert column_values(crowd, width=5, start=0, end=10) == [9, None, None, None, 2]
    steps = Series(name="bound", points=[(0, 5), (5, 7)], unit="s", style=Style.LIMIT)
    assert column_values(steps, width=4, start=0, end=10) == [5, 5, 7, 7]


def test_infinities_are_not_drawn_and_nothing_is_said_to_be_nothing() -> None:
    endless = Series(name="rate", points=[(0, float("inf")), (1, 1.0)], unit="s")
    assert panels([endless])[0].high == 1.0
    assert chart_text([]) == "nothing to draw: no points"


def test_a_terminal_of_ascii_gets_ascii_and_a_terminal_gets_the_same_characters_as_a_file() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii", write_through=True) as stream:
        print_chart([RATE, BOUND], stream, height=4)
        assert raw.getvalue().decode("ascii").count("#") > 20
    terminal = TerminalOf()
    print_chart([RATE, BOUND], terminal, height=4)
    plain = io.StringIO()
    print_chart([RATE, BOUND], plain, height=4)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert "\x1b[" in terminal.getvalue()
    assert [line.rstrip() for line in bare.splitlines()] == plain.getvalue().splitlines()


def test_colour_is_an_addition() -> None:
    colours = {colour for line in chart_lines([RATE, BOUND, DELAY]) for _, colour in line}
    assert {"cyan", "yellow", "red"} <= colours


@pytest.mark.parametrize("name", ["plot.png", "plot.svg"])
def test_a_plot_is_the_same_file_each_time(tmp_path: Path, name: str) -> None:
    first, second = tmp_path / name, tmp_path / f"again-{name}"
    save_plot([RATE, BOUND, DELAY, DEBT], first, title="Example")
    save_plot([RATE, BOUND, DELAY, DEBT], second, title="Example")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")
    assert len(first.read_bytes()) > 5000


def test_an_svg_names_what_it_shows(tmp_path: Path) -> None:
    save_plot([RATE, BOUND, DELAY], tmp_path / "plot.svg", title="Quota 5 B/s")
    text = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {word} -->" in text for word in ("rate", "bound", "delay", "Quota 5 B/s"))


def test_targets_that_can_not_be_drawn_are_refused_before_any_work(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(UsageError, match=r"must end in \.png or \.svg"):
        check_plot_targets([tmp_path / "plot.pdf"])
    with pytest.raises(UsageError, match="there is no folder"):
        check_plot_targets([tmp_path / "missing" / "plot.png"])
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError, match="it can't be written"):
        check_plot_targets([tmp_path / "folder.png"])
    with pytest.raises(UsageError, match="--plot names a file twice"):
        check_plot_targets([tmp_path / "plot.png", tmp_path / "plot.png"])
    monkeypatch.setattr("kafka_quotas.core.extras.find_spec", lambda name: None)
    with pytest.raises(KafkaQuotasError, match="need matplotlib") as caught:
        check_plot_targets([tmp_path / "plot.png"])
    assert caught.value.hint == install_extra("plot")


def test_a_run_too_short_for_a_time_axis_is_not_drawn() -> None:
    limit = Series(name="quota", points=[(0.0, 2e6), (0.0, 2e6)], unit="bytes/s", style=Style.LIMIT)

    assert chart_text([limit]) == "nothing to draw: it was too short"
