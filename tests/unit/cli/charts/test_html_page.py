"""Reports as one HTML page: whole, escaped, self-contained, with charts in it."""

import logging
import re
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kafka_quotas.cli.charts.html_page import (
    KeyFigure,
    Mood,
    ReportPage,
    ReportSection,
    page_html,
    save_page,
)
from kafka_quotas.cli.charts.plot import Bar, bars_svg, curves_svg, heat_svg, load_matplotlib, series_svg
from kafka_quotas.cli.charts.text_chart import Series, Style
from kafka_quotas.cli.output.listing import Table, columns
from kafka_quotas.core.errors import KafkaQuotasError

HOSTILE = "<script>alert('x')</script> & \"quoted\""


@cache
def drawn(name: str) -> str:
    return bars_svg([Bar(name=name, value=5.0, limit=3.0)], unit="bytes/s")


def page(*, name: str = "alice", svg: str = "") -> ReportPage:
    table = Table(columns=columns("entity, rate>"), rows=[(name, "5 MB/s")])
    chart = (svg or drawn(name), name)
    return ReportPage(
        title=f"Quotas of {name}",
        subtitle="one hour",
        figures=(KeyFigure(label="held", value="no", note=name, mood=Mood.BAD),),
        sections=(ReportSection("Usage", name, charts=(chart,), tables=(table,)),),
    )


def test_every_text_is_escaped() -> None:
    html = page_html(page(name=HOSTILE))

    assert "<script" not in html
    assert html.count("&lt;script&gt;alert") >= 6


def test_the_page_loads_nothing_from_elsewhere() -> None:
    html = page_html(page())

    assert not re.search(r"(src|href)=\"(?!#)", html.replace('xlink:href="#', 'href="#'))
    assert "@import" not in html
    assert "url(http" not in html


def test_a_verdict_is_told_by_more_than_colour() -> None:
    assert '<span aria-label="bad">&#10007;</span> no' in page_html(page())


def test_the_same_page_gives_the_same_file() -> None:
    assert page_html(page()) == page_html(page(svg=drawn.__wrapped__("alice")))


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    save_page(page(), target)
    old = target.read_text(encoding="utf-8")

    with pytest.raises(KafkaQuotasError, match="can't write"):
        save_page(page(name="bob"), tmp_path / "missing" / "report.html")
    save_page(page(name="bob"), target)

    assert "Quotas of alice" in old
    assert "Quotas of bob" in target.read_text(encoding="utf-8")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert stat.S_IMODE(target.stat().st_mode) & stat.S_IRUSR


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (
            lambda: bars_svg([Bar(name="a$b", value=2e6, limit=1e6), Bar(name="c", value=1.0)], unit="bytes/s"),
            ["a$b", "2 MB"],
        ),
        (lambda: bars_svg([], unit="%"), []),
        (
            lambda: curves_svg(
                [Series(name="alice", points=((1e6, 0.5), (4e6, 0.0)))], x_unit="bytes/s", y_name="share"
            ),
            ["alice"],
        ),
        (
            lambda: curves_svg([Series(name="x", points=((1.0, 0.5),))], x_unit="%", y_name="share"),
            ["share"],
        ),
        (
            lambda: heat_svg(["alice", "bob"], ["00", "01"], [[1.0, 2.0], [0.0, 4.0]], unit="bytes/s"),
            ["alice", "bob", "01"],
        ),
        (
            lambda: series_svg(
                [
                    Series(name="rate", points=[(0.0, 1e6), (1.0, 2e6)], unit="bytes/s", style=Style.AREA),
                    Series(name="throttle", points=[(1.0, 500.0)], unit="ms", style=Style.BARS),
                ]
            ),
            ["rate", "throttle"],
        ),
    ],
)
def test_a_chart_is_well_formed_and_its_words_stay_words(draw: Callable[[], str], said: list[str]) -> None:
    words = " ".join(ET.fromstring(draw()).itertext())

    for word in said:
        assert word in words


def test_what_is_drawn_has_tips_with_units() -> None:
    line = Series(name="rate", unit="bytes/s", points=((0.0, 1e6), (1.0, 2e6)), style=Style.LINE)
    bars = Series(name="throttled", unit="ms", points=((1.0, 250.0),), style=Style.BARS)
    assert tips(series_svg([line, bars])) == ["rate, 0 s: 1 MB/s", "rate, 1 s: 2 MB/s", "throttled, 1 s: 250 ms"]
    assert tips(bars_svg([Bar(name=HOSTILE, value=2e6, limit=1e6)], unit="bytes/s")) == [f"{HOSTILE}: 2 MB/s of 1 MB/s"]
    curve = Series(name="app", points=((1.0, 50.0),))
    assert tips(curves_svg([curve], x_unit="ms", y_name="% answered")) == ["app: 1 ms, 50 % answered"]
    assert tips(heat_svg(["app"], ["08:00"], [[3e6]], unit="bytes/s")) == ["app, 08:00: 3 MB/s"]


def test_every_axis_has_its_unit() -> None:
    assert ">ms</text>" in bars_svg([Bar(name="app", value=20.0)], unit="ms")
    assert ">ms</text>" in curves_svg([Series(name="a", points=((1.0, 2.0),))], x_unit="ms", y_name="% answered")
    assert ">bytes/s</text>" not in bars_svg([Bar(name="app", value=2e6)], unit="bytes/s"), "2 MB/s says it"


def test_the_place_of_a_legend_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among many points that takes a slow machine more than a second, of which matplotlib warns on standard error."""
    monkeypatch.setattr("matplotlib.legend.Legend._find_best_position", lambda *_: pytest.fail("it was searched for"))
    assert ">app</text>" in curves_svg([Series(name="app", points=((1.0, 2.0),))], x_unit="ms", y_name="% answered")


def test_a_line_of_many_points_has_a_bounded_number_of_tips() -> None:
    many = Series(name="rate", unit="ms", points=tuple((float(x), 1.0) for x in range(1000)), style=Style.LINE)
    assert 30 <= len(tips(series_svg([many]))) <= 60


def tips(svg: str) -> list[str]:
    """The tips of a drawing, and that it is well formed."""
    return [str(title.text) for title in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]


def test_what_matplotlib_says_about_its_fonts_is_not_printed() -> None:
    """At its first drawing on a slow machine it said that it builds a cache, in a line without "note:"."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.NOTSET)
    load_matplotlib()
    assert not logging.getLogger("matplotlib.font_manager").isEnabledFor(logging.WARNING)
