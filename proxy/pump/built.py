"""Whether the compiled module is there, without loading it or anything else."""

from __future__ import annotations

from importlib.util import find_spec


def is_built() -> bool:
    """It lies beside this file; whether it can be used is told when it is loaded (choice.py)."""
    return find_spec("sluice.proxy.pump.core") is not None
