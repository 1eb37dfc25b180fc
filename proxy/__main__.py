"""`python -m sluice.proxy` is the command `sluice`."""

from sluice.proxy.cli.main import main

main()
