"""What earlier versions wrote, and earlier versions themselves, to be run beside this one."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Final

FIRST_VERSION: Final = Path(__file__).parents[1] / "tests/fixtures/first-version"
FIRST_WHEEL: Final = FIRST_VERSION / "kafka_sluice-0.1.0-py3-none-any.whl"
FIRST_COMMIT: Final = "66648de765edf62bc1e9f35ad8134181a190751d"
FIRST_MAIN: Final = "sluice.proxy.cli"
"""the module whose `main` the wheel's command calls"""

# This checkout's packages are found by a path entry of the environment; an older one must find none of them.
_PROGRAM: Final = """\
import sys
sys.path[:] = [{wheel!r}, *(path for path in sys.path if not path.endswith(".editable"))]
from {main} import main
main()
"""


def first_version(folder: Path) -> list[str | Path]:
    """The first version's `sluice`, as a command; unpacked into a folder of its own below this one."""
    installed = folder / "first-version"
    with zipfile.ZipFile(FIRST_WHEEL) as wheel:
        wheel.extractall(installed)
    program = folder / "sluice-first-version.py"
    program.write_text(_PROGRAM.format(wheel=str(installed), main=FIRST_MAIN))
    return [sys.executable, program]
