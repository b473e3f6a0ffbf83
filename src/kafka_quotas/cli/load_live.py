"""A running load test, live on standard error: a bar of time, and what every client gets at the moment.

Off where standard error is no terminal. Only this module and what it draws with load Rich.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_quotas.cli.render import is_terminal
from kafka_quotas.core.units import format_bytes
from kafka_quotas.loadtest.progress import EntityProgress, RunProgress, Watcher

_BAR = 24
_ROWS = 20  # more clients than fit on a screen are told by number


@contextmanager
def live_watcher(title: str) -> Iterator[Watcher | None]:
    """The watcher that draws the live view while the context lasts; None where nobody looks."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only a live view pays for Rich
    from rich.live import Live  # noqa: PLC0415

    with Live(console=Console(file=sys.stderr, highlight=False), transient=True, auto_refresh=False) as live:
        yield lambda progress: live.update("\n".join(progress_lines(progress, title)), refresh=True)


def progress_lines(progress: RunProgress, title: str) -> list[str]:
    """The view as lines of text, at most 80 columns wide for client-ids of up to 18 characters."""
    share = progress.elapsed_s / progress.total_s if progress.total_s else 1.0
    phase = "warming up" if progress.warming_up else "measuring"
    lines = [f"{title} {bar(share)} {progress.elapsed_s:.0f} of {progress.total_s:.0f} s, {phase}"]
    lines += [_line(entity) for entity in progress.entities[:_ROWS]]
    if len(progress.entities) > _ROWS:
        lines.append(f"  and {len(progress.entities) - _ROWS} more clients")
    return lines


def bar(share: float, *, width: int = _BAR) -> str:
    """A bar that is full at a share of 1."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "━" * filled + "╌" * (width - filled)


def _line(entity: EntityProgress) -> str:
    quota = entity.entity.quota
    against = "no quota" if quota is None else f"{entity.bytes_per_second / quota:5.2f} of {format_bytes(quota)}/s"
    throttled = f"throttled {entity.throttle_count} x" if entity.throttle_count else ""
    rate = f"{format_bytes(entity.bytes_per_second)}/s"
    return f"  {entity.entity.name.label:<18} {rate:>12}  {against:<22} {throttled}".rstrip()
