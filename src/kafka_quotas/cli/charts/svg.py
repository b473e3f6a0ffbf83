"""Charts for reports, as SVG text to be put into a page. matplotlib is loaded by the first drawing only.

Invariants: the same figures give the same text; letters stay letters, so that they can be searched and read aloud.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

from kafka_quotas.cli.charts.plot import (
    COLOURS,
    INK,
    TIP,
    add_point_tips,
    draw_panels,
    load_matplotlib,
    plain_axes,
    require_matplotlib,
    set_tip,
)
from kafka_quotas.cli.charts.text_chart import Series, panels
from kafka_quotas.core.model.value_format import format_axis_value, format_value_with_unit, names_itself

_BAR: Final = "#3d7fb8"
_OVER: Final = "#c0392b"
_WIDE_RANGE: Final = 10_000
"""From this ratio on a logarithmic axis has powers of ten alone."""
_NARROW_RANGE: Final = 10
"""Up to this ratio it has more round values than 1, 2 and 5."""
_LETTERS_ACROSS: Final = 110
"""How many letters of names fit below a heat map."""
_HEAT: Final = "heat"
"""The class of the cells of a heat map, whose colours a dark page inverts."""
_TIPPED: Final = re.compile(f'<g id="{TIP}([^"]*)">')
_LINE_STYLES: Final = ("-", "--", "-.", ":")
_DOTTED: Final = (0, (1, 1.2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A named bar."""

    name: str
    value: float
    limit: float | None = None
    """Marked by a line across the bar, None without a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line through points (x, y), the smallest x first."""

    name: str
    points: tuple[tuple[float, float], ...]
    uncertain: tuple[bool, ...] = ()
    """Which of the points are uncertain, and drawn dotted, none where it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place on the x-axis with a name."""

    name: str
    x: float


def series_svg(series: Sequence[Series]) -> str:
    """Draw time series, one panel per unit over one time axis."""
    drawn = panels(series)
    return _svg(lambda figure: draw_panels(figure, drawn, tips=True), height=2.4 + 1.5 * max(len(drawn) - 1, 0))


def bars_svg(bars: Sequence[Bar], *, unit: str) -> str:
    """Draw horizontal bars, the first on top.

    Bars over their limit are hatched and red.
    """
    return _svg(lambda figure: _draw_bars(figure.subplots(), bars, unit), height=0.7 + 0.34 * max(len(bars), 1))


def curves_svg(
    curves: Sequence[Curve],
    *,
    x_unit: str,
    y_name: str,
    log_x: bool = False,
    mark: Mark | None = None,
    uncertain: str = "",
) -> str:
    """Draw curves over one pair of axes, each with its own colour and dashes.

    The mark is a line from top to bottom. `uncertain` is the legend of what is drawn dotted.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        if mark is not None:
            axes.axvline(mark.x, color=INK, linewidth=1.4, linestyle=(0, (1, 2)), label=_short(mark.name))
        if any(any(curve.uncertain) for curve in curves):
            axes.plot([], [], color=INK, linewidth=1.9, linestyle=_DOTTED, label=uncertain)
        _draw_curves(axes, curves, x_unit, y_name, log_x=log_x)

    return _svg(draw, height=3.4)


def heat_svg(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], *, unit: str) -> str:
    """Draw a heat map, one row of cells per name, with a scale beside it.

    Larger values stand out more from the page, in light and in dark colours.
    """
    return _svg(lambda figure: _draw_heat(figure, rows, columns, values, unit), height=1.0 + 0.32 * max(len(rows), 2))


def _svg(draw: Callable[[Any], None], *, height: float) -> str:
    require_matplotlib()
    mpl = load_matplotlib()
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "kafka-quotas", "svg.fonttype": "none", "font.size": 10, "text.color": INK}):
        figure = Figure(figsize=(10.0, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = target.getvalue()
    text = text[text.index("<svg") :].replace(f'<g id="{_HEAT}">', f'<g class="{_HEAT}">')
    return _TIPPED.sub(r"<g><title>\1</title>", text)


def _draw_bars(axes: Any, bars: Sequence[Bar], unit: str) -> None:
    places = range(len(bars))
    over = [each.limit is not None and each.value > each.limit for each in bars]
    drawn = axes.barh(places, [each.value for each in bars], height=0.62, color=[_OVER if o else _BAR for o in over])
    for rectangle, is_over in zip(drawn, over, strict=True):
        if is_over:
            rectangle.set_hatch("///")
            rectangle.set_edgecolor("white")
    for place, rectangle, each in zip(places, drawn, bars, strict=True):
        bound = "" if each.limit is None else f" of {format_value_with_unit(each.limit, unit)}"
        set_tip(rectangle, f"{each.name}: {format_value_with_unit(each.value, unit)}{bound}")
        if each.limit is not None:
            axes.plot([each.limit, each.limit], [place - 0.42, place + 0.42], color=INK, linewidth=2.2)
    axes.set_yticks(list(places), [_short(each.name) for each in bars])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: format_axis_value(value, unit))
    _label_x(axes, unit)
    plain_axes(axes, grid="x")


def _draw_curves(axes: Any, curves: Sequence[Curve], x_unit: str, y_name: str, *, log_x: bool) -> None:
    for index, curve in enumerate(curves):
        colour = COLOURS[index % len(COLOURS)]
        style = _LINE_STYLES[index // len(COLOURS) % len(_LINE_STYLES)]
        axes.plot([], [], color=colour, linestyle=style, linewidth=1.9, label=_short(curve.name))
        for is_uncertain, points in _parts(curve):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=colour, linestyle=_DOTTED if is_uncertain else style, linewidth=1.9)
        add_point_tips(axes, curve.points, partial(_curve_tip, curve, x_unit, y_name))
    if log_x:
        axes.set_xscale("log", subs=())  # a label at each minor tick is too many, and they'd be powers
        axes.xaxis.set_major_locator(_log_ticks(curves))
    axes.xaxis.set_major_formatter(lambda value, _: format_axis_value(value, x_unit))
    _label_x(axes, x_unit)
    axes.set_ylabel(y_name, color=INK)
    plain_axes(axes, grid="both")
    if curves:
        # Above the axes: to find the best place among many points takes seconds, of which matplotlib then warns.
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=9, borderaxespad=0.2)


def _parts(curve: Curve) -> Iterator[tuple[bool, Sequence[tuple[float, float]]]]:
    """Yield the certain and the uncertain parts of a curve, each up to where the next one begins."""
    marks = curve.uncertain or (False,) * len(curve.points)
    begin = 0
    for is_uncertain, run in groupby(marks):
        end = begin + len(list(run))
        yield is_uncertain, curve.points[begin : end + 1]
        begin = end


def _label_x(axes: Any, unit: str) -> None:
    """Name the unit below the axis, unless the values on it show it already."""
    if not names_itself(unit):
        axes.set_xlabel(unit, color=INK)


def _curve_tip(curve: Curve, x_unit: str, y_name: str, x: float, y: float) -> str:
    return f"{curve.name}: {format_value_with_unit(x, x_unit)}, {y:.3g} {y_name}"


def _log_ticks(curves: Sequence[Curve]) -> Any:
    from matplotlib.ticker import LogLocator  # noqa: PLC0415 - loaded by now

    values = [x for curve in curves for x, _ in curve.points if x > 0]
    ratio = max(values) / min(values) if values else 1.0
    if ratio > _WIDE_RANGE:
        return LogLocator(base=10, subs=(1.0,))
    return LogLocator(base=10, subs=(1.0, 2.0, 5.0) if ratio > _NARROW_RANGE else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))


def _draw_heat(
    figure: Any, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], unit: str
) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - loaded by now

    axes = figure.subplots()
    mesh = axes.pcolormesh([list(row) for row in values], cmap="YlOrBr", vmin=0, edgecolors="white", linewidth=0.6)
    mesh.set_gid(_HEAT)
    axes.set_yticks([place + 0.5 for place in range(len(rows))], [_short(row) for row in rows])
    for row, (name, figures) in enumerate(zip(rows, values, strict=True)):
        for place, value in enumerate(figures):
            cell = Rectangle((place, row), 1, 1, alpha=0)
            set_tip(axes.add_patch(cell), f"{name}, {columns[place]}: {format_value_with_unit(value, unit)}")
    step = max(1, -(-sum(len(column) + 2 for column in columns) // _LETTERS_ACROSS))
    shown = range(0, len(columns), step)
    axes.set_xticks([place + 0.5 for place in shown], [columns[place] for place in shown])
    axes.invert_yaxis()
    axes.tick_params(colors=INK, length=0)
    axes.spines[:].set_visible(False)
    scale = figure.colorbar(mesh, ax=axes, pad=0.01, aspect=12)
    scale.ax.yaxis.set_major_formatter(lambda value, _: format_axis_value(value, unit))
    scale.outline.set_visible(False)


def _short(name: str) -> str:
    """Shorten a name to leave room for the chart, and escape matplotlib's formula sign."""
    cut = name if len(name) <= 34 else f"{name[:20]}...{name[-11:]}"
    return cut.replace("$", r"\$")
