"""docs/ and the papers beside it (README.md, CHANGELOG.md, …) → a site.

Each is written for whoever reads it in the repository. So links between them are turned to each other's
pages, links to other files of the repository to copies of these. A link to what is not there fails the build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from logging import getLogger
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
PAPERS: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
"""papers of the repository's root → their pages"""
COPIES: Final = "files"
"""the site's folder of files that are in the repository and not in docs/"""
_LINK: Final = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)\s]+)(?=\))")
_log: Final = getLogger("mkdocs.plugins.sluice")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a folder's pages in the place of `folder/*` in the navigation; what it forgot stands at its end."""
    nav = _expanded(config.nav)
    named = set(_pages(nav))
    forgotten = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    config.nav = [*nav, {"More": forgotten}] if forgotten else nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add as pages the papers, and what they and docs/ lead to: a page that comes later is never built."""
    for path in _pages_elsewhere():
        _copied(path, files, config)
    for paper, page in PAPERS.items():
        text = (ROOT / paper).read_text(encoding="utf-8")
        files.append(
            File.generated(config, page, content=_LINK.sub(_in_site(paper, page, files, config), text))
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn a page's links: those that leave docs/ lead to a paper's page or to a copy."""
    source = page.file.src_uri
    if source in PAPERS.values():
        return markdown
    in_repository = source.removeprefix(f"{COPIES}/") if source.startswith(f"{COPIES}/") else f"docs/{source}"
    return _LINK.sub(_in_site(in_repository, source, files, config), markdown)


def _in_site(path_here: str, page: str, files: Files, config: MkDocsConfig) -> Any:
    """How to turn links of a page of the site that is this file of the repository."""
    here = posixpath.dirname(path_here)

    def turned(found: re.Match[str]) -> str:
        target, _, anchor = found[0].partition("#")
        path = posixpath.normpath(posixpath.join(here, target))
        if path.startswith("docs/") and not (ROOT / path).is_dir():
            there = path.removeprefix("docs/")
        elif path in PAPERS:
            there = PAPERS[path]
        elif (ROOT / path).is_file():
            there = _copied(path, files, config)
        else:
            _log.warning("%s: link to %s, which is not a file of the repository", page, target)
            return found[0]
        return posixpath.relpath(there, posixpath.dirname(page) or ".") + (f"#{anchor}" if anchor else "")

    return turned


def _pages_elsewhere() -> list[str]:
    """The repository's pages that links lead to from docs/ and the papers, from page to page."""
    unread = [*PAPERS, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
    found = set(unread)
    while unread:
        here = unread.pop()
        for link in _LINK.findall((ROOT / here).read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(here), link.partition("#")[0]))
            if path.endswith(".md") and path not in found and (ROOT / path).is_file():
                found.add(path)
                unread.append(path)
    return sorted(path for path in found if path not in PAPERS and not path.startswith("docs/"))


def _copied(path: str, files: Files, config: MkDocsConfig) -> str:
    """Have a file of the repository in the site; returns where."""
    there = f"{COPIES}/{path}"
    if files.get_file_from_path(there) is None:
        new = File.generated(
            config, there, abs_src_path=str(ROOT / path), inclusion=InclusionLevel.NOT_IN_NAV
        )
        files.append(new)
    return there


def _pages(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from _pages(entry)


def _expanded(entries: Any) -> Any:
    if isinstance(entries, dict):
        return {title: _expanded(entry) for title, entry in entries.items()}
    if isinstance(entries, list):
        return [_expanded(entry) for entry in entries]
    if isinstance(entries, str) and entries.endswith("/*"):
        folder = entries.removesuffix("*")
        names = sorted(path.name for path in (ROOT / "docs" / folder).glob("*.md"))
        return [folder + name for name in sorted(names, key=lambda name: name != "index.md")]
    return entries
