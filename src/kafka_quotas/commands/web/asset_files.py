"""The files of the pages, which the package brings along: HTML, style sheets, scripts."""

from importlib.resources import files
from typing import Final

from kafka_quotas.enforcement import HttpHandler, HttpReply, Query

STYLE: Final = "style.css"
"""The style sheet that pages and HTML reports share."""
_SHARED: Final = (STYLE, "page.css", "elements.js", "icon.svg")
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def asset_text(name: str) -> str:
    """Return the content of a file of the pages."""
    return files("kafka_quotas.commands.web").joinpath("assets", name).read_text(encoding="utf-8")


def asset_routes(name: str) -> dict[str, HttpHandler]:
    """Return the paths of a page: `NAME.html` at `/`, `NAME.js`, and the files that all pages share."""
    paths = {"/": f"{name}.html", f"/{name}.js": f"{name}.js", **{f"/{each}": each for each in _SHARED}}
    return {path: _handler(file) for path, file in paths.items()}


def _handler(name: str) -> HttpHandler:
    reply = HttpReply(body=asset_text(name).encode(), content_type=_TYPES[name.rpartition(".")[2]])

    async def answer(_: Query) -> HttpReply:
        return reply

    return answer
