"""Where the files lie that earlier versions wrote."""

from pathlib import Path
from typing import Final

FIRST_VERSION: Final = Path(__file__).parents[1] / "tests/fixtures/first-version"
