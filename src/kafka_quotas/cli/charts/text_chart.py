"""Time series drawn as characters, on a terminal in colour, elsewhere in plain text.

Invariants: series of one unit share a panel; all panels share the time axis; a mark has its meaning by its character
and the legend, never by colour alone; nothing is wider than asked for.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final, TextIO

from kafka_quotas.core.model.value_format import format_axis_value

Point = tuple[float, float]


class Style(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    AREA = "area"
    LIMIT = "limit"
    """A level that lasts until the next point."""
    BARS = "bars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named run of points in the order of time."""

    name: str
    points: Sequence[Point]
    unit: str = ""
    """Series of one unit share a panel; curves over another axis than time have none of their own."""
    style: Style = Style.LINE
    uncertain: Sequence[bool] = ()
    """Which of a curve's points are uncertain, and drawn dotted, none where it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The series of one unit, with the range of values that holds them all and zero."""

    unit: str
    series: tuple[Series, ...]
    low: float
    high: float


_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_LINES: Final = "●◆▲■○◇△□"
_LIMIT: Final = "╌"
_ASCII: Final = str.maketrans(f"{_BLOCKS}{_LINES}{_LIMIT}┤└─", "   #####*o+x@%&$-|+-")
"""What stands for each character on a terminal that knows ASCII only."""
_COLOURS: Final = ("cyan", "magenta", "green", "blue", "bright_cyan", "bright_magenta", "bright_green", "bright_blue")
_LIMIT_COLOUR: Final = "yellow"
_BARS_COLOUR: Final = "red"
_MARGIN: Final = 12
"""Columns left of the plot: a label of ten characters, a blank, the axis."""
_MANTISSAS: Final = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""What a step of the value axis may begin with, so that labels are round."""
_LEAST_RANGE_S = 0.001
_LEAST_WIDTH: Final = _MARGIN + 20

_Cell = tuple[str, str]
"""A character and its colour ("" for none)."""


def print_chart(series: Sequence[Series], stream: TextIO, *, title: str = "", height: int = 8) -> None:
    """Print the chart to the stream, in colour on a terminal unless NO_COLOR is set.

    The height is in lines per panel.
    """
    lines: Iterable[list[_Cell]] = chart_lines(series, title=title, height=height)
    if "utf" not in (getattr(stream, "encoding", None) or "utf-8").lower():
        lines = [[(text.translate(_ASCII), colour) for text, colour in line] for line in lines]
    if not stream.isatty():
        stream.writelines("".join(character for character, _ in line).rstrip() + "\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415 - only a chart on a terminal pays for Rich
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*line))


def chart_lines(
    series: Sequence[Series], *, title: str = "", width: int = 80, height: int = 8
) -> Iterator[list[_Cell]]:
    """Yield the lines of the chart, each as pieces of text with their colours."""
    width = max(width, _LEAST_WIDTH)
    if title:
        yield [(title[:width], "bold")]
    drawn = panels(series)
    if not drawn:
        yield [("nothing to draw: no points", "")]
        return
    start, end = time_range(drawn)
    if end - start <= _LEAST_RANGE_S:
        yield [("nothing to draw: it was too short", "")]
        return
    for panel in drawn:
        yield from ([(line, "bold")] for line in _legend(panel, width))
        yield from _panel_lines(panel, width=width - _MARGIN, height=height, start=start, end=end)
    room = width - _MARGIN
    first, middle, last = (f"{format_axis_value(time, 's')} s" for time in (start, (start + end) / 2, end))
    line = f"{first:<{room // 2 - len(middle) // 2}}{middle}"
    yield [(" " * _MARGIN + line + f"{last:>{room - len(line)}}", "")]


def panels(series: Sequence[Series]) -> tuple[Panel, ...]:
    """Group the series into panels by unit, in order of first appearance."""
    by_unit: dict[str, list[Series]] = {}
    for each in series:
        if each.points:
            by_unit.setdefault(each.unit, []).append(each)
    made = []
    for unit, group in by_unit.items():
        values = [0.0, *(value for series in group for _, value in series.points if math.isfinite(value))]
        low, high = min(values), max(values)
        made.append(Panel(unit=unit, series=tuple(group), low=low, high=high if high > low else low + 1))
    return tuple(made)


def time_range(drawn: Sequence[Panel]) -> tuple[float, float]:
    """Return the first and the last time of all points in seconds, at least a millisecond apart."""
    times = [point[0] for panel in drawn for series in panel.series for point in series.points]
    start, end = min(times), max(times)
    return start, end if end > start else start + _LEAST_RANGE_S


def _legend(panel: Panel, width: int) -> Iterator[str]:
    names = [f"{_mark(series, index)} {series.name}" for index, series in enumerate(panel.series)]
    line = ""
    for name in (*names, f"[{panel.unit}]"):
        shown = name if len(name) <= width else name[: width - 1] + "~"
        longer = f"{line}   {shown}" if line else shown
        if len(longer) > width:
            yield line
            longer = shown
        line = longer
    yield line


def _mark(series: Series, index: int) -> str:
    if series.style is Style.LIMIT:
        return _LIMIT
    return _LINES[index % len(_LINES)] if series.style is Style.LINE else _BLOCKS[-1]


def _panel_lines(panel: Panel, *, width: int, height: int, start: float, end: float) -> Iterator[list[_Cell]]:
    panel, step = scaled(panel, height)
    grid: list[list[_Cell]] = [[(" ", "")] * width for _ in range(height)]
    order = (Style.AREA, Style.BARS, Style.LINE, Style.LIMIT)  # what comes later is drawn over what came before
    for index, series in sorted(enumerate(panel.series), key=lambda pair: order.index(pair[1].style)):
        columns = column_values(series, width=width, start=start, end=end)
        for column, value in enumerate(columns):
            if value is not None:
                _draw(grid, column, value, panel=panel, series=series, index=index)
    for row in range(height + 1):
        steps = height - row + round(panel.low / step)
        label = format_axis_value(steps * step, panel.unit) if steps % 2 == 0 else ""
        axis, cells = ("┤", grid[row]) if row < height else (f"└{'─' * width}", [])
        yield [(f"{label[:10]:>10} {axis}", ""), *cells]


def scaled(panel: Panel, rows: int) -> tuple[Panel, float]:
    """Widen the range of a panel to whole steps, one step per row and 0 at a step.

    Returns:
        The panel and the height of a step.
    """
    least = (panel.high - panel.low) / rows
    power = 10.0 ** math.floor(math.log10(least))
    for step in (mantissa * scale for scale in (power, power * 10) for mantissa in _MANTISSAS):
        below, above = math.ceil(-panel.low / step - 1e-9), math.ceil(panel.high / step - 1e-9)
        if below + above <= rows:
            return replace(panel, low=-below * step, high=(rows - below) * step), step
    return panel, least


def _draw(grid: list[list[_Cell]], column: int, value: float, *, panel: Panel, series: Series, index: int) -> None:
    """Draw a value into its column, as high as the labels of the rows say.

    A label and the floor are in the middles of their rows, so a bar ends in the middle of the row that has its value.
    """
    height = len(grid)
    filled = min(max((value - panel.low) / (panel.high - panel.low), 0.0), 1.0) * height
    colour = _LIMIT_COLOUR if series.style is Style.LIMIT else _COLOURS[index % len(_COLOURS)]
    if series.style in (Style.LINE, Style.LIMIT):
        row = height - max(math.floor(filled + 0.5), 1)
        if series.style is Style.LIMIT and grid[row][column][0] in _LINES and column % 2:
            return  # a line that runs along its limit shows in every other column
        grid[row][column] = (_mark(series, index), colour)
        return
    colour = _BARS_COLOUR if series.style is Style.BARS else colour
    eighths = max(round((filled - 0.5) * len(_BLOCKS)), 1 if filled > 0 else 0)
    for row in range(height - 1, height - 1 - math.ceil(eighths / len(_BLOCKS)), -1):
        grid[row][column] = (_BLOCKS[min(eighths, len(_BLOCKS)) - 1], colour)
        eighths -= len(_BLOCKS)


def column_values(series: Series, *, width: int, start: float, end: float) -> list[float | None]:
    """Return one value per column, the largest of the points in it.

    The style decides the value of a column between two points. None leaves a column empty.
    """
    columns: list[float | None] = [None] * width
    for time_s, value in series.points:
        if math.isfinite(value):
            column = min(int((time_s - start) / (end - start) * width), width - 1)
            before = columns[column]
            columns[column] = value if before is None else max(before, value)
    if series.style is not Style.BARS:
        _fill_gaps(columns, hold=series.style is Style.LIMIT)
    return columns


def _fill_gaps(columns: list[float | None], *, hold: bool) -> None:
    """Fill the columns between two points by the earlier one, or without `hold` by the line between both."""
    placed = [(column, value) for column, value in enumerate(columns) if value is not None]
    for (left, first), (right, last) in pairwise(placed):
        for column in range(left + 1, right):
            share = 0.0 if hold else (column - left) / (right - left)
            columns[column] = first + (last - first) * share
    if hold and placed:
        end, level = placed[-1]
        columns[end + 1 :] = [level] * (len(columns) - end - 1)
