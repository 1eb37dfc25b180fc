"""Pictures for the documentation, of the pages that checks open: `make pictures` has them in docs/images.

Every run of a check takes them, so that a page that cannot be shown is seen; they lie below .cache/deploy
unless PICTURES_FOLDER names another folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from chromium import Page

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / os.environ.get("PICTURES_FOLDER", ".cache/deploy/pictures")
SIZES: Final = ((1280, 860), (400, 860))
"""of the screen, in pixels: a desk's and a telephone's"""
SCHEMES: Final = ("light", "dark")


def take_pictures(page: Page, address: str, name: str, *, until: str = "true", before: str = "0") -> None:
    """One of each size and scheme: `NAME-1280-light.png`. `until`: on the page, true once it can be taken;
    `before`: run on the page then."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for width, height in SIZES:
        for scheme in SCHEMES:
            page.look(width, height, scheme)
            page.go(address)
            page.until_true(until)
            page.run(before)
            page.screenshot(FOLDER / f"{name}-{width}-{scheme}.png", whole=False)
