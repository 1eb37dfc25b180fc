"""`python -m sluice.proxy` is the command `sluice`."""

from sluice.proxy.cli import main

main()
