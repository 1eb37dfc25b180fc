"""`python -m sluice.proxy.alive`: the old name of `sluice healthcheck`, which works one release more."""

from sluice.proxy.cli.healthcheck import main

if __name__ == "__main__":
    main()
