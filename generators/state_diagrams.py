"""The pictures of the daemon's state machines in docs/project/architecture.md, laid out by Graphviz.

`python -m generators.state_diagrams` writes them; it needs `dot` (Debian's `graphviz`). They are files of their own, so
that a page shows them without a script, and they follow the reader's light or dark colours.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ROOT / "docs" / "images"
START: Final = "start"
"""The point from which an arrow leads to the first state."""

Arrows = tuple[tuple[str, str, str], ...]
"""The state that an arrow leaves, the one that it leads to, and what happens; `|` breaks its lines."""

DIAGRAMS: Final[Mapping[str, Arrows]] = {
    "connection-states": (
        (START, "READING", ""),
        ("READING", "AWAITING_RESPONSE", "await_response(request)"),
        ("AWAITING_RESPONSE", "READING", "answered(the awaited request)"),
        ("AWAITING_RESPONSE", "THROTTLED", "answered(the awaited request),|which exceeded a quota"),
        ("READING", "THROTTLED", "throttle(request|without a response)"),
        ("THROTTLED", "READING", "wake() after its|throttle time"),
        ("READING", "DRAINING", "drain()"),
        ("AWAITING_RESPONSE", "DRAINING", "drain()"),
        ("THROTTLED", "DRAINING", "drain()"),
        ("DRAINING", "CLOSED", "close(), everything is answered"),
        ("READING", "CLOSED", "close()"),
        ("AWAITING_RESPONSE", "CLOSED", "close()"),
        ("THROTTLED", "CLOSED", "close()"),
    ),
    "sasl-states": (
        (START, "INITIAL_REQUEST", ""),
        ("INITIAL_REQUEST", "HANDSHAKE_OR_VERSIONS_REQUEST", "a request"),
        ("INITIAL_REQUEST", "AUTHENTICATE", "a Kerberos token|without a header (0.9)"),
        ("HANDSHAKE_OR_VERSIONS_REQUEST", "AUTHENTICATE", "the broker accepts|the mechanism"),
        ("HANDSHAKE_OR_VERSIONS_REQUEST", "FAILED", "the broker rejects|the mechanism"),
        (
            "HANDSHAKE_OR_VERSIONS_REQUEST",
            "COMPLETE",
            "the broker answers another request,|or the probe, or SASL with error 34",
        ),
        ("AUTHENTICATE", "COMPLETE", "the broker accepts|the last token"),
        ("AUTHENTICATE", "AUTHENTICATE_OR_COMPLETE", "the broker accepts a token|that can't be read"),
        ("AUTHENTICATE", "FAILED", "the broker rejects a token"),
        ("AUTHENTICATE_OR_COMPLETE", "COMPLETE", "the broker answers|the probe"),
        ("AUTHENTICATE_OR_COMPLETE", "FAILED", "it answers with an error"),
        ("COMPLETE", "AUTHENTICATE", "the broker accepts|a mechanism again (KIP-368)"),
        ("COMPLETE", "FAILED", "the broker rejects it"),
    ),
}
"""The arrows of each picture, by the name of its file."""
_STYLE: Final = """<style>
text { font: 12px Helvetica, Arial, sans-serif; fill: #2b3440 } .node text { font-weight: 600 }
.node path, .node polygon { fill: #e8eaf6; stroke: #3f51b5 }
.start ellipse, .edge polygon { fill: #5b6675; stroke: none }
.edge path { fill: none; stroke: #5b6675 }
@media (prefers-color-scheme: dark) {
  text { fill: #dfe3ea } .node path, .node polygon { fill: #2f3554; stroke: #8c9eff }
  .start ellipse, .edge polygon { fill: #9aa5b5 } .edge path { stroke: #9aa5b5 }
}
</style>"""


def states(name: str) -> set[str]:
    """Return the states that a picture shows."""
    return {state for source, target, _ in DIAGRAMS[name] for state in (source, target)} - {START}


def graph(name: str) -> str:
    """Return the text of a picture's graph for Graphviz."""
    lines = [
        "digraph { graph [ranksep=0.6, nodesep=0.5]",
        'node [shape=box, style=rounded, margin="0.25,0.1", fontname="Helvetica", fontsize=13]',
        'edge [fontname="Helvetica", fontsize=12, arrowsize=0.8]',
        f'{START} [shape=point, width=0.15, class="start"]',
    ]
    for source, target, event in DIAGRAMS[name]:
        label = "\\l".join(f"  {line}  " for line in event.split("|")) + "\\l"
        lines.append(f'{source} -> {target} [label="{label}"]' if event else f"{source} -> {target}")
    return "\n".join([*lines, "}"])


def themed(drawn: str) -> str:
    """Return what Graphviz drew without its colours, fonts and titles, with a style for light and dark."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?", "", body, flags=re.DOTALL)
    body = re.sub(r' (?:fill|stroke|font-family|font-size)="[^"]*"', "", body)
    body = re.sub(r'(<g id="graph0"[^>]*>\n)<polygon[^>]*/>\n', r"\1", body)
    return body.replace(">\n", f">\n{_STYLE}\n", 1)


def main() -> None:
    """Write every picture anew."""
    for name in DIAGRAMS:
        drawn = subprocess.run(
            ["dot", "-Tsvg"],  # noqa: S607 - wherever the machine has it
            input=graph(name),
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        (IMAGES / f"{name}.svg").write_text(themed(drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
