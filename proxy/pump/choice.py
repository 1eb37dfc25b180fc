"""Which data path runs: the compiled one where it is built, unless the configuration says otherwise."""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, TypeAlias

from sluice.proxy.connection.data_path import PURE, DataPath
from sluice.quotas.files.config_error import ConfigError, Problem

PumpOption: TypeAlias = Literal["auto", "on", "off"]
PUMP: Final = "pump"


@cache
def compiled() -> DataPath | None:
    """The pump's; None: it is not built here."""
    try:
        from sluice.proxy.pump.compiled import PumpedConnection, PumpedSession
    except ImportError:
        return None
    return DataPath(PUMP, PumpedSession, PumpedConnection)


def why_not() -> str:
    """In a few words, why `compiled` has none."""
    try:
        from sluice.proxy.pump import core  # noqa: F401
    except ModuleNotFoundError:
        return "not built"
    except ImportError as error:
        return f"built, but cannot be used: {error}"
    return ""


def data_path(option: PumpOption) -> DataPath:
    """The one that is asked for. Raises ConfigError for `on` where there is no pump."""
    if option == "off":
        return PURE
    found = compiled()
    if found is None:
        if option == "on":
            problem = f"the compiled data path is {why_not()}: build it (a C compiler), or say auto"
            raise ConfigError([Problem(problem, "pump")])
        return PURE
    return found
