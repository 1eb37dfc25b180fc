"""The pump held against the Python code on random traffic: episodes by seed, until so many steps are done.

    python -m tools.fuzz_pump [--steps 1000000] [--seed 0]

The last line of standard output is one JSON object. Exit code 1: they differ; 2: there is no pump here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from sluice.proxy.pump.choice import compiled
from testkit.pump.worlds import Difference, Twins

EPISODE_STEPS: Final = 400
_TOLD_DIFFERENCES: Final = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Tell the first differences, each with the seed that brings it again."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz_pump", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; each next has one more")
    arguments = parser.parse_args(argv)
    if compiled() is None:
        print("fuzz-pump: the pump is not built here (make setup tells why)", file=sys.stderr)
        return 2
    steps = differences = episodes = 0
    while steps < arguments.steps:
        twins = Twins(arguments.seed + episodes)
        episodes += 1
        try:
            while twins.steps < EPISODE_STEPS and not twins.is_over:
                twins.step()
        except Difference as difference:
            differences += 1
            if differences <= _TOLD_DIFFERENCES:
                print(difference)
        steps += twins.steps
    print(json.dumps({"steps": steps, "episodes": episodes, "differences": differences}))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
