"""Which data path runs: the compiled one where it is built, unless the configuration says otherwise."""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, TypeAlias

from sluice.proxy.connection.data_path import PURE, DataPath
from sluice.proxy.pump.built import is_built
from sluice.quotas.files.config_error import ConfigError, Problem

PumpOption: TypeAlias = Literal["auto", "on", "off"]
PUMP: Final = "pump"


@cache
def compiled() -> DataPath | None:
    """The pump's; None: it is not built here. Raises ImportError if it is, and cannot be used: it was built
    for other classes or another C library."""
    if not is_built():
        return None
    from sluice.proxy.pump.compiled import COUNTING, PumpedConnection, PumpedPoller, PumpedSession

    return DataPath(PUMP, PumpedSession, PumpedConnection, PumpedPoller, COUNTING)


def data_path(option: PumpOption) -> DataPath:
    """The one that is asked for. Raises ConfigError for `on` where there is no pump."""
    if option == "off":
        return PURE
    try:
        found, why = compiled(), "is not built here"
    except ImportError as error:
        found, why = None, f"cannot be used here ({error})"
    if found is None and option == "on":
        raise ConfigError([Problem(f"the compiled data path {why}; auto goes without", "pump")])
    return found or PURE
