"""Time series drawn into a PNG or SVG file, or shown where a command's charts belong.

Charts go below a table on standard output, beside data on standard error, or into a file. The first drawing loads
matplotlib.

Invariants: the same series give the same file (no date, no random ids in an SVG); a target that can't be drawn is
refused before any work is done.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kafka_quotas.cli.charts.text_chart import Panel, Series, Style, panels, print_chart, time_range
from kafka_quotas.cli.output.listing import Output
from kafka_quotas.core.errors import KafkaQuotasError, UsageError
from kafka_quotas.core.extras import require_extra
from kafka_quotas.core.model.value_format import format_axis_value, format_value_with_unit

PLOT_SUFFIXES: Final = (".png", ".svg")

INK: Final = "#2b3440"
TIP: Final = "tip:"
"""How the id of something drawn begins that has a tip."""
_MOST_TIPS: Final = 60
"""Most points of a line that have tips."""
_FAINT: Final = "#d9dee5"
COLOURS: Final = ("#1f77b4", "#8c4bb8", "#2a9d5c", "#d6701c", "#0fa3b1", "#b5446e")
_LIMIT_COLOUR: Final = "#c0392b"
_BARS_COLOUR: Final = "#e08e0b"
_LARGEST_SHARE: Final = 0.06
"""A bar is at most this share of the time axis wide."""


def check_plot_targets(paths: Sequence[Path]) -> None:
    """Check that a plot can be written to each of the files."""
    for path in paths:
        check_plot_target(path)
    if len(set(paths)) < len(paths):
        raise UsageError("--plot names a file twice", hint="each one is drawn into by itself")


def check_plot_target(path: Path) -> None:
    """Check that a plot can be written to `path`."""
    if path.suffix.lower() not in PLOT_SUFFIXES:
        raise UsageError(f"can't draw {path}: the name must end in .png or .svg", hint=f"for example {path.stem}.svg")
    if not path.parent.is_dir():
        raise UsageError(f"can't draw {path}: there is no folder {path.parent}", hint="make the folder first")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"can't draw {path}: it can't be written", hint="choose another path")
    require_matplotlib()


def require_matplotlib() -> None:
    """Check that matplotlib is installed."""
    require_extra("plot", "matplotlib", needed_by="plots need")


def load_matplotlib() -> ModuleType:
    """Import matplotlib, whose remarks about its cache of fonts are no lines of ours on standard error."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only a plot or a report pays for

    return mpl


def save_plot(series: Sequence[Series], path: Path, *, title: str) -> None:
    """Draw the series into a file, one panel per unit over one time axis."""
    check_plot_target(path)
    mpl = load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "kafka-quotas", "font.size": 10, "text.color": INK}):
        figure = Figure(figsize=(9.6, 5.4), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold")
        draw_panels(figure, panels(series))
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise KafkaQuotasError(
                f"can't write {path}: {error.strerror or error}", hint="choose another path"
            ) from error


def draw_panels(figure: Any, drawn: Sequence[Panel], *, tips: bool = False) -> None:
    """Draw the panels one above the other into a matplotlib figure.

    The first panel is higher than the others. `tips` gives points and bars a text each, see `set_tip`.
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
    rows[-1][0].set_xlabel("time (s)", color=INK)


def set_tip(artist: Any, text: str) -> None:
    """Give something drawn a text that a browser shows at the pointer, where the drawing is SVG."""
    artist.set_gid(TIP + text)


def add_point_tips(axes: Any, points: Sequence[tuple[float, float]], text: Callable[[float, float], str]) -> None:
    """Lay circles that can't be seen on some points of a line, so that each has its tip."""
    step = max(1, -(-len(points) // _MOST_TIPS))
    for x, y in points[::step]:
        (circle,) = axes.plot([x], [y], marker="o", markersize=9, linestyle="none", alpha=0)
        set_tip(circle, text(x, y))


def _draw_panel(axes: Any, panel: Panel, *, span_s: float, tips: bool) -> None:
    def text(series: Series, time_s: float, value: float) -> str:
        return f"{series.name}, {time_s:.4g} s: {format_value_with_unit(value, panel.unit)}"

    for index, series in enumerate(panel.series):
        bars = _draw_series(axes, series, COLOURS[index % len(COLOURS)], span_s=span_s)
        if not tips:
            continue
        if series.style is not Style.BARS:
            add_point_tips(axes, series.points, partial(text, series))
        for bar, (time_s, value) in zip(bars, series.points, strict=False):
            set_tip(bar, text(series, time_s, value))
    room = (panel.high - panel.low) * 0.08
    axes.set_ylim(panel.low - (room if panel.low < 0 else 0), panel.high + room)
    label = f"{panel.series[0].name} ({panel.unit})" if len(panel.series) == 1 else panel.unit
    axes.set_ylabel(label, color=INK)
    axes.yaxis.set_major_formatter(lambda value, _: format_axis_value(value, panel.unit))
    plain_axes(axes, grid="both")
    if panel.low < 0:
        axes.axhline(0, color=INK, linewidth=0.8)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, fontsize=9, borderaxespad=0.2)


def plain_axes(axes: Any, *, grid: str) -> None:
    """Draw a faint grid along `grid` ("x", "y" or "both"), and no frame but the bottom line."""
    axes.grid(visible=True, axis=grid, color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)


def _draw_series(axes: Any, series: Series, colour: str, *, span_s: float) -> Sequence[Any]:
    """Draw a series and return its bars, none where it is a line."""
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
            width = min(span_s * _LARGEST_SHARE, max(_nearest_s(times) * 0.8, span_s * 0.004))
            bars: Sequence[Any] = axes.bar(times, values, width=width, color=_BARS_COLOUR, label=series.name)
            return bars
        case Style.AREA:
            axes.fill_between(times, values, color=colour, alpha=0.18, linewidth=0)
            axes.plot(times, values, color=colour, linewidth=1.8, label=series.name)
        case Style.LINE:
            axes.plot(times, values, color=colour, linewidth=1.8, label=series.name)
    return ()


def _nearest_s(times: Sequence[float]) -> float:
    """Return the smallest distance of two bars in seconds, 0 for a single bar."""
    ordered = sorted(set(times))
    return min((later - earlier for earlier, later in pairwise(ordered)), default=0.0)


def show_chart(series: Sequence[Series], output: Output, *, title: str, chart: bool, plots: Sequence[Path]) -> None:
    """Draw the series as characters if `chart` says so, and into every file of `plots`."""
    if chart:
        stream = sys.stdout if output in (Output.TABLE, Output.MARKDOWN) else sys.stderr
        fenced = output is Output.MARKDOWN
        stream.write("\n```\n" if fenced else "\n")
        print_chart(series, stream, title=title)
        stream.write("```\n" if fenced else "")
    for plot in plots:
        save_plot(series, plot, title=title)
        sys.stderr.write(f"drawn: {plot}\n")
