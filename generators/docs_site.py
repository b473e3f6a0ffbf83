"""Hooks of the documentation's site: the order of its parts, and files outside of `docs/` that pages link to.

MkDocs calls these functions by their names; `mkdocs.yml` names this module.
"""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

PARTS = ("Tutorial", "How to", "Reference", "Explanation", "Scenarios", "Project")
"""The folders of `docs/` as the site titles them, in the order of its tabs."""
COPIES = "files"
"""The folder of the site that holds what pages link to outside of `docs/`."""
_BAR = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
"""Code with a bar in a cell of a table, whose backslash GitHub takes away and MkDocs shows."""
_LINK = re.compile(r"\]\((\.\./[^)#\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file and folder of the checkout that a page links to."""
    root = Path(config.docs_dir).parent
    linked = {path for page in files.documentation_pages() for path in _outside(page, root)}
    for path in sorted(linked):
        inside = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        for each in inside:
            uri = f"{COPIES}/{each.relative_to(root)}"
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(each)))
        if path.is_dir():
            lines = [f"# {path.relative_to(root)}\n", *(f"- [{each.name}]({each.name})" for each in inside)]
            uri = f"{COPIES}/{path.relative_to(root)}/index.md"
            files.append(File.generated(config, uri, content="\n".join(lines), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:  # noqa: ARG001 - MkDocs' signature
    """Put the parts into their order: by default folders come by the alphabet."""
    nav.items.sort(key=lambda item: PARTS.index(item.title or "") if isinstance(item, Section) else -1)
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Lead links out of `docs/` to the copies in the site, and show bars in code as GitHub does."""
    root = Path(config.docs_dir).parent

    def copied(match: re.Match[str]) -> str:
        path = _resolved(page.file, match[1], root)
        if path is None:
            return match[0]
        target = f"{COPIES}/{path.relative_to(root)}" + ("/index.md" if path.is_dir() else "")
        return f"]({os.path.relpath(target, Path(page.file.src_uri).parent)})"

    return _LINK.sub(copied, _BAR.sub(_code_with_bars, markdown))


def _code_with_bars(match: re.Match[str]) -> str:
    return f"<code>{html.escape(match[1].replace(chr(92) + '|', '|')).replace('|', '&#124;')}</code>"


def _outside(page: File, root: Path) -> Iterator[Path]:
    targets = (_resolved(page, target, root) for target in _LINK.findall(page.content_string))
    return (path for path in targets if path is not None)


def _resolved(page: File, target: str, root: Path) -> Path | None:
    """Return the path that a page's link leads to, or nothing if it stays in `docs/` or leads nowhere."""
    path = (root / "docs" / page.src_uri).parent.joinpath(target).resolve()
    return path if path.exists() and not path.is_relative_to(root / "docs") else None
