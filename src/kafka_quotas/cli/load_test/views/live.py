"""A running load test, live on standard error: the time, and every client's rate against its quota.

It is off where standard error is no terminal. Only this module loads Rich for it. Of many clients it shows those that
are throttled most, then the fastest, and a line with the sum of all.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafka_quotas.cli.output.render import is_terminal
from kafka_quotas.core.model.value_format import format_duration_us
from kafka_quotas.loadtest import UNITS, ClientProgress, RunProgress, Watcher

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR = 24
_SHARE_BAR = 10
_ROWS = 15
TITLES = ("client", "does", "rate", "quota", "of it", "throttled", "waiting")


@contextmanager
def live_watcher(title: str) -> Iterator[Watcher | None]:
    """Yield a watcher that draws the live view, None where standard error is no terminal."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only a live view pays for Rich
    from rich.live import Live  # noqa: PLC0415

    with Live(console=Console(file=sys.stderr, highlight=False), transient=True, auto_refresh=False) as live:
        yield lambda progress: live.update(live_view(progress, title), refresh=True)


def live_view(progress: RunProgress, title: str) -> "RenderableType":
    """Return the view as something that Rich draws."""
    from rich.console import Group  # noqa: PLC0415 - loaded by now
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in TITLES:
        table.add_column(name, justify="right" if name in ("rate", "quota", "throttled", "waiting") else "left")
    for row in progress_rows(progress):
        table.add_row(*(Text(cell) for cell in row))
    return Group(Text(headline(progress, title), style="bold"), table)


def headline(progress: RunProgress, title: str) -> str:
    """Return what runs, how far it is, and the time left."""
    done_s, most_s = progress.done_s, progress.most_s
    share = done_s / most_s if most_s else 1.0
    phase = "warming up" if progress.warming_up else "measuring"
    left_s = max(most_s - done_s, 0.0)
    return f"{title} {bar(share)} {done_s:.0f} of {most_s:.0f} s, {phase}, {left_s:.0f} s left"


def progress_rows(progress: RunProgress) -> list[tuple[str, ...]]:
    """Return one row per client, and for many clients a sum of all."""
    entities = progress.entities
    if len(entities) <= _ROWS:
        return [_row(entity) for entity in entities]
    chosen = sorted(entities, key=lambda each: (-each.throttle_sum_ms, -each.rate))[:_ROWS]
    return [*(_row(entity) for entity in chosen), *_sums(entities)]


def bar(share: float, *, width: int = _BAR) -> str:
    """Return a bar that is full at a share of 1."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "━" * filled + "╌" * (width - filled)


def _row(entity: ClientProgress) -> tuple[str, ...]:
    load = entity.entity
    unit = UNITS[load.workload]
    share = None if load.quota is None else entity.rate / load.quota
    return (
        load.name.label + (" (control)" if load.control else ""),
        load.workload.value,
        unit.text(entity.rate),
        "none" if load.quota is None else unit.text(load.quota),
        "" if share is None else f"{bar(share, width=_SHARE_BAR)} {share:.2f}",
        _throttled(entity.throttle_count, entity.throttle_sum_ms),
        f"{entity.waiting:,}",
    )


def _sums(entities: Sequence[ClientProgress]) -> Iterator[tuple[str, ...]]:
    for unit in dict.fromkeys(UNITS[entity.entity.workload] for entity in entities):
        alike = [entity for entity in entities if UNITS[entity.entity.workload] is unit]
        throttled = _throttled(sum(each.throttle_count for each in alike), sum(each.throttle_sum_ms for each in alike))
        rate = unit.text(sum(each.rate for each in alike))
        yield (f"all {len(alike):,}", "", rate, "", "", throttled, f"{sum(each.waiting for each in alike):,}")


def _throttled(count: int, sum_ms: float) -> str:
    return f"{count:,}x {format_duration_us(sum_ms * 1000)}" if count else ""
