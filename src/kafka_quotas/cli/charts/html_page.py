"""A report as one HTML file that needs nothing else: no network, no script, its charts drawn into it.

Invariants: every text is escaped by the template; the same page gives the same file. The style sheet is that of the
pages for browsers, so that both follow the reader's light or dark colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafka_quotas.cli.output.listing import Table
from kafka_quotas.core.extras import require_extra
from kafka_quotas.stores import save_text

_TEMPLATE = "report_page.html.j2"


class Mood(StrEnum):
    """How the reader should take a figure."""

    GOOD = "good"
    BAD = "bad"
    WATCH = "watch"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """A figure for the top of the page, and a line below it."""

    label: str
    value: str
    note: str = ""
    mood: Mood = Mood.PLAIN


ReportChart = tuple[str, str]
"""A drawing as SVG text, and a description for readers who can't see it."""


class ReportSection:
    """A heading, paragraphs, then charts, then tables."""

    def __init__(
        self, title: str, *paragraphs: str, charts: Sequence[ReportChart] = (), tables: Sequence[Table] = ()
    ) -> None:
        self.title, self.paragraphs, self.charts, self.tables = title, paragraphs, charts, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A whole report."""

    title: str
    subtitle: str
    figures: tuple[KeyFigure, ...]
    sections: tuple[ReportSection, ...]
    summary: str = ""
    """What came out, in a few plain sentences, empty for none."""


def require_jinja() -> None:
    """Check that a page can be made."""
    require_extra("plot", "jinja2", needed_by="reports need")


def page_html(page: ReportPage) -> str:
    """Return the page as HTML."""
    require_jinja()
    import jinja2  # noqa: PLC0415 - a report is drawn seldom

    from kafka_quotas.commands.web.asset_files import STYLE, asset_text  # noqa: PLC0415 - as above

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kafka_quotas.cli.charts", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE).render(page=page, style=asset_text(STYLE))


def save_page(page: ReportPage, path: Path) -> None:
    """Write the page into a file, whole or not at all."""
    save_text(path, [page_html(page)])
