"""Drawings by matplotlib: time series in PNG and SVG files, and the charts of reports as SVG text.

The first drawing loads matplotlib.

Invariants: the same figures give the same file or text (no date, no random ids); letters of an SVG stay letters, so
that they can be searched and read aloud; a target that can't be drawn is refused before any work is done.
"""

import io
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kafka_quotas.cli.charts.text_chart import Panel, Series, Style, panels, time_range
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import require_extra
from kafka_quotas.core.model.value_format import format_axis_value, format_value_with_unit, names_itself

_INK: Final = "#2b3440"
_TIP: Final = "tip:"
"""How the id of something drawn begins that has a tip."""
_MOST_TIPS: Final = 60
"""Most points of a line that have tips."""
_FAINT: Final = "#d9dee5"
_COLOURS: Final = ("#1f77b4", "#8c4bb8", "#2a9d5c", "#d6701c", "#0fa3b1", "#b5446e")
_LIMIT_COLOUR: Final = "#c0392b"
_BARS_COLOUR: Final = "#e08e0b"
_LARGEST_SHARE: Final = 0.06
"""A bar is at most this share of the time axis wide."""
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
_TIPPED: Final = re.compile(f'<g id="{_TIP}([^"]*)">')
_LINE_STYLES: Final = ("-", "--", "-.", ":")
_DOTTED: Final = (0, (1, 1.2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A named bar."""

    name: str
    value: float
    limit: float | None = None
    """Marked by a line across the bar, None without a limit."""


def check_plot_targets(paths: Sequence[Path]) -> None:
    """Check that matplotlib is installed, and that a plot can be written to each of the files."""
    for path in paths:
        if path.suffix.lower() not in (".png", ".svg"):
            hint = f"for example {path.stem}.svg"
            raise UsageError(f"can't draw {path}: the name must end in .png or .svg", hint=hint)
        if not path.parent.is_dir():
            raise UsageError(f"can't draw {path}: there is no folder {path.parent}", hint="make the folder first")
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"can't draw {path}: it can't be written", hint="choose another path")
        require_matplotlib()
    if len(set(paths)) < len(paths):
        raise UsageError("--plot names a file twice", hint="each one is drawn into by itself")


def require_matplotlib() -> None:
    """Check that matplotlib is installed."""
    require_extra("plot", "matplotlib", needed_by="plots need")


def load_matplotlib() -> ModuleType:
    """Import matplotlib, whose remarks about its cache of fonts are no lines of ours on standard error."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only a plot or a report pays for

    return mpl


@contextmanager
def _figure(width: float, height: float, **settings: Any) -> Iterator[Any]:
    require_matplotlib()
    mpl = load_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - loaded by now

    with mpl.rc_context({"svg.hashsalt": "kafka-quotas", "font.size": 10, "text.color": _INK, **settings}):
        yield Figure(figsize=(width, height), layout="constrained")


def save_plot(series: Sequence[Series], path: Path, *, title: str) -> None:
    """Draw the series into a file, one panel per unit over one time axis."""
    check_plot_targets([path])
    with _figure(9.6, 5.4) as figure:
        figure.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold")
        _draw_panels(figure, panels(series))
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise KafkaQuotasError(
                f"can't write {path}: {error.strerror or error}", hint="choose another path"
            ) from error


def _draw_panels(figure: Any, drawn: Sequence[Panel], *, tips: bool = False) -> None:
    """Draw the panels one above the other into a matplotlib figure.

    The first panel is higher than the others. `tips` gives points and bars a text each, see `_set_tip`.
    """
    if not drawn:
        figure.text(0.5, 0.5, "nothing to draw: no points", ha="center")
        return
    heights = [2.0] + [1.2] * (len(drawn) - 1)
    rows = figure.subplots(len(drawn), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    start, end = time_range(drawn)
    for panel, (axes,) in zip(drawn, rows, strict=True):
        _draw_panel(axes, panel, span_s=end - start, tips=tips)
    figure.align_ylabels()
    margin = (end - start) * 0.01
    rows[-1][0].set_xlim(start - margin, end + margin)
    rows[-1][0].set_xlabel("time (s)", color=_INK)


def _set_tip(artist: Any, text: str) -> None:
    """Give something drawn a text that a browser shows at the pointer, where the drawing is SVG."""
    artist.set_gid(_TIP + text)


def _add_point_tips(axes: Any, points: Sequence[tuple[float, float]], text: Callable[[float, float], str]) -> None:
    """Lay circles that can't be seen on some points of a line, so that each has its tip."""
    step = max(1, -(-len(points) // _MOST_TIPS))
    for x, y in points[::step]:
        (circle,) = axes.plot([x], [y], marker="o", markersize=9, linestyle="none", alpha=0)
        _set_tip(circle, text(x, y))


def _draw_panel(axes: Any, panel: Panel, *, span_s: float, tips: bool) -> None:
    def text(series: Series, time_s: float, value: float) -> str:
        return f"{series.name}, {time_s:.4g} s: {format_value_with_unit(value, panel.unit)}"

    for index, series in enumerate(panel.series):
        bars = _draw_series(axes, series, _COLOURS[index % len(_COLOURS)], span_s=span_s)
        if not tips:
            continue
        if series.style is not Style.BARS:
            _add_point_tips(axes, series.points, partial(text, series))
        for bar, (time_s, value) in zip(bars, series.points, strict=False):
            _set_tip(bar, text(series, time_s, value))
    room = (panel.high - panel.low) * 0.08
    axes.set_ylim(panel.low - (room if panel.low < 0 else 0), panel.high + room)
    label = f"{panel.series[0].name} ({panel.unit})" if len(panel.series) == 1 else panel.unit
    axes.set_ylabel(label, color=_INK)
    axes.yaxis.set_major_formatter(lambda value, _: format_axis_value(value, panel.unit))
    _plain_axes(axes, grid="both")
    if panel.low < 0:
        axes.axhline(0, color=_INK, linewidth=0.8)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, fontsize=9, borderaxespad=0.2)


def _plain_axes(axes: Any, *, grid: str) -> None:
    axes.grid(visible=True, axis=grid, color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)


def _draw_series(axes: Any, series: Series, colour: str, *, span_s: float) -> Sequence[Any]:
    times = [point[0] for point in series.points]
    values = [point[1] for point in series.points]
    match series.style:
        case Style.LIMIT:
            axes.step(
                times,
                values,
                where="post",
                color=_LIMIT_COLOUR,
                linestyle=(0, (5, 3)),
                linewidth=1.6,
                label=series.name,
            )
        case Style.BARS:
            nearest_s = min((later - earlier for earlier, later in pairwise(sorted(set(times)))), default=0.0)
            width = min(span_s * _LARGEST_SHARE, max(nearest_s * 0.8, span_s * 0.004))
            bars: Sequence[Any] = axes.bar(times, values, width=width, color=_BARS_COLOUR, label=series.name)
            return bars
        case Style.AREA:
            axes.fill_between(times, values, color=colour, alpha=0.18, linewidth=0)
            axes.plot(times, values, color=colour, linewidth=1.8, label=series.name)
        case Style.LINE:
            axes.plot(times, values, color=colour, linewidth=1.8, label=series.name)
    return ()


def series_svg(series: Sequence[Series]) -> str:
    """Draw time series, one panel per unit over one time axis."""
    drawn = panels(series)
    return _svg(lambda figure: _draw_panels(figure, drawn, tips=True), height=2.4 + 1.5 * max(len(drawn) - 1, 0))


def bars_svg(bars: Sequence[Bar], *, unit: str) -> str:
    """Draw horizontal bars, the first on top.

    Bars over their limit are hatched and red.
    """
    return _svg(lambda figure: _draw_bars(figure.subplots(), bars, unit), height=0.7 + 0.34 * max(len(bars), 1))


def curves_svg(
    curves: Sequence[Series],
    *,
    x_unit: str,
    y_name: str,
    mark: tuple[str, float] | None = None,
    uncertain: str = "",
) -> str:
    """Draw curves over one pair of axes, each with its own colour and dashes, x on a logarithmic scale.

    The mark is a line from top to bottom, by its name and its x. `uncertain` is the legend of what is drawn dotted.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        if mark is not None:
            name, x = mark
            axes.axvline(x, color=_INK, linewidth=1.4, linestyle=(0, (1, 2)), label=_short(name))
        if any(any(curve.uncertain) for curve in curves):
            axes.plot([], [], color=_INK, linewidth=1.9, linestyle=_DOTTED, label=uncertain)
        for index, curve in enumerate(curves):
            _draw_curve(axes, curve, index, lambda x, y: f"{format_value_with_unit(x, x_unit)}, {y:.3g} {y_name}")
        axes.set_xscale("log", subs=())  # a label at each minor tick is too many, and they'd be powers
        axes.xaxis.set_major_locator(_log_ticks(curves))
        axes.xaxis.set_major_formatter(lambda value, _: format_axis_value(value, x_unit))
        _label_x(axes, x_unit)
        axes.set_ylabel(y_name, color=_INK)
        _plain_axes(axes, grid="both")
        if curves:
            # Above the axes: to find the best place among many points takes seconds, of which matplotlib then warns.
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=9, borderaxespad=0.2)

    return _svg(draw, height=3.4)


def heat_svg(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], *, unit: str) -> str:
    """Draw a heat map, one row of cells per name, with a scale beside it.

    Larger values stand out more from the page, in light and in dark colours.
    """
    return _svg(lambda figure: _draw_heat(figure, rows, columns, values, unit), height=1.0 + 0.32 * max(len(rows), 2))


def _svg(draw: Callable[[Any], None], *, height: float) -> str:
    target = io.StringIO()
    with _figure(10.0, height, **{"svg.fonttype": "none"}) as figure:
        draw(figure)
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
        _set_tip(rectangle, f"{each.name}: {format_value_with_unit(each.value, unit)}{bound}")
        if each.limit is not None:
            axes.plot([each.limit, each.limit], [place - 0.42, place + 0.42], color=_INK, linewidth=2.2)
    axes.set_yticks(list(places), [_short(each.name) for each in bars])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: format_axis_value(value, unit))
    _label_x(axes, unit)
    _plain_axes(axes, grid="x")


def _draw_curve(axes: Any, curve: Series, index: int, text: Callable[[float, float], str]) -> None:
    colour = _COLOURS[index % len(_COLOURS)]
    style = _LINE_STYLES[index // len(_COLOURS) % len(_LINE_STYLES)]
    axes.plot([], [], color=colour, linestyle=style, linewidth=1.9, label=_short(curve.name))
    for is_uncertain, points in _parts(curve):
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, linestyle=_DOTTED if is_uncertain else style, linewidth=1.9)
    _add_point_tips(axes, curve.points, lambda x, y: f"{curve.name}: {text(x, y)}")


def _parts(curve: Series) -> Iterator[tuple[bool, Sequence[tuple[float, float]]]]:
    """Yield the certain and the uncertain parts of a curve, each up to where the next one begins."""
    marks = curve.uncertain or (False,) * len(curve.points)
    begin = 0
    for is_uncertain, run in groupby(marks):
        end = begin + len(list(run))
        yield is_uncertain, curve.points[begin : end + 1]
        begin = end


def _label_x(axes: Any, unit: str) -> None:
    if not names_itself(unit):
        axes.set_xlabel(unit, color=_INK)


def _log_ticks(curves: Sequence[Series]) -> Any:
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
            _set_tip(axes.add_patch(cell), f"{name}, {columns[place]}: {format_value_with_unit(value, unit)}")
    step = max(1, -(-sum(len(column) + 2 for column in columns) // _LETTERS_ACROSS))
    shown = range(0, len(columns), step)
    axes.set_xticks([place + 0.5 for place in shown], [columns[place] for place in shown])
    axes.invert_yaxis()
    axes.tick_params(colors=_INK, length=0)
    axes.spines[:].set_visible(False)
    scale = figure.colorbar(mesh, ax=axes, pad=0.01, aspect=12)
    scale.ax.yaxis.set_major_formatter(lambda value, _: format_axis_value(value, unit))
    scale.outline.set_visible(False)


def _short(name: str) -> str:
    """Shorten a name to leave room for the chart, and escape matplotlib's formula sign."""
    cut = name if len(name) <= 34 else f"{name[:20]}...{name[-11:]}"
    return cut.replace("$", r"\$")
