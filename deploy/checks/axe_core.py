"""axe-core, the accessibility rules that browsers' developer tools use: from npm, pinned by its hash."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

from chromium import NOT_DONE, Page

VERSION: Final = "4.14.1"
SHA512: Final = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_MEMBER: Final = "package/axe.min.js"


def axe_source(cache: Path) -> str:
    """The program's text; fetched once into `cache`. Exits with NOT_DONE if it cannot be had."""
    file = cache / f"axe-core-{VERSION}.tgz"
    if not file.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        if shutil.which("npm") is None:
            print("needs npm, for axe-core")
            sys.exit(NOT_DONE)
        done = subprocess.run(
            ["npm", "pack", "--silent", f"axe-core@{VERSION}"],
            cwd=cache,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode or not file.is_file():
            print(done.stderr[-1000:])
            print(f"npm could not fetch axe-core {VERSION}")
            sys.exit(NOT_DONE)
    data = file.read_bytes()
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != SHA512:
        file.unlink()
        sys.exit(f"axe-core {VERSION} is not what it was")
    with tarfile.open(file) as archive:
        member = archive.extractfile(_MEMBER)
        assert member is not None
        return member.read().decode()


def violations(page: Page, source: str) -> list[str]:
    """Every rule that the page breaks, with the elements: empty if there is none."""
    if not page.run("typeof window.axe === 'object'"):
        page.run(f"{source}; 0")
    options: dict[str, Any] = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}
    found = page.run(f"axe.run(document, {json.dumps(options)}).then((result) => result.violations)")
    return [
        f"{one['id']} ({one['impact']}): {node['target']} {node.get('failureSummary', '')[:300]}"
        for one in found
        for node in one["nodes"][:3]
    ]
