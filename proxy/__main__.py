"""The entry point of the command `sluice`, also as `python -m sluice.proxy`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command that the arguments name and exit with its code.

    The health check goes without the imports of the others: containers ask it every few seconds.
    """
    if None in {sys.stdin, sys.stdout, sys.stderr}:
        from sluice.proxy.runtime.standard_files import open_standard_files

        open_standard_files()
    if sys.argv[1:2] == ["healthcheck"]:
        from sluice.proxy.cli.healthcheck import config_in
        from sluice.proxy.cli.healthcheck import main as check

        config = config_in(sys.argv[2:])
        if config is not None:
            check(config)
    try:
        from sluice.proxy.cli.main import main as command

        command()
    except KeyboardInterrupt:  # Ctrl-C before the command has begun: loading it takes a moment
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
