#!/usr/bin/env python3
"""The documentation builds as a site; its links lead somewhere, and no page asks another host for anything.

mkdocs' strict mode looks at links between pages and at headings that they name; this looks at the HTML that
came out, as a browser without a network would. Links to other hosts are not followed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

ROOT: Final = Path(__file__).resolve().parents[2]
SITE: Final = ROOT / ".cache" / "site"
LOADED: Final = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
"""what a browser fetches without being asked to"""
NOT_FETCHED: Final = {"canonical", "next", "prev", "alternate", "edit"}
"""relations of a <link> that only says something"""


class PageLinks(HTMLParser):
    """What a page links to and loads, and the places in it that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[tuple[str, bool]] = []
        """(address, whether it is loaded)"""
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        loads = values.get("rel") not in NOT_FETCHED
        for name in ("href", "src"):
            if name in values:
                self.targets.append((values[name], (tag, name) in LOADED and loads))


def read(page: Path) -> PageLinks:
    """Parse a page of the site."""
    links = PageLinks()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def broken(site: Path) -> Iterator[str]:
    """Each link of each page that leads nowhere, and each thing that would be loaded from another host."""
    pages = {page: read(page) for page in sorted(site.rglob("*.html"))}
    for page, links in pages.items():
        for address, is_loaded in links.targets:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if is_loaded and parts.scheme != "data":
                    yield f"{page.relative_to(site)} loads {address}"
                continue
            path = unquote(parts.path)
            target = (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
            target = page if not path else target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{page.relative_to(site)} links to {address}, which is not there"
                continue
            anchor = unquote(parts.fragment)
            if anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{page.relative_to(site)} links to {address}, which has no such place"


def main() -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        sys.exit("mkdocs: see above")
    problems = list(broken(SITE))
    if problems:
        sys.exit("\n".join(problems))
    pages = list(SITE.rglob("*.html"))
    if len(pages) < 10:  # an empty site has no broken link either
        sys.exit(f"only {len(pages)} pages were built")
    print(f"{len(pages)} pages: {(SITE / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
