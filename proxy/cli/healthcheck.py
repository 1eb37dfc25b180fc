"""Whether the proxy of this container is alive: the image's HEALTHCHECK, `sluice healthcheck`.

Asks /livez at the probe port of the configuration; exit code 0 if it answers 200 within 2 s, else 1 and a
reason. The configuration is not validated: the check runs every few seconds, and neither pydantic (0.4 s of
processor time) nor a mistake that somebody just made in the file shall make a running proxy unhealthy.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from stat import S_ISREG
from typing import Any, Final, NoReturn

import yaml

DEFAULT_PORT: Final = 9309
"""AdminOptions.probe_address's; a test compares them"""
TIMEOUT_S: Final = 2.0
_LAST_PORT: Final = 65535
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def config_in(arguments: Sequence[str]) -> str | None:
    """The file that the arguments behind `healthcheck` name, empty: none; None: these are other arguments."""
    match list(arguments):
        case []:
            return ""
        case ["--config" | "-c", file]:
            return file
        case [argument] if argument.startswith("--config="):
            return argument.removeprefix("--config=")
        case [file] if file and not file.startswith("-"):
            return file
    return None


def probe_address(environ: Mapping[str, str], config: str = "") -> tuple[str, int]:
    """Where the probe port is, by the SLUICE_* variables, the configuration file, or the defaults.

    `config`: that file; else it is the one that SLUICE_CONFIG names.

    What cannot be read is passed over; a port that the system chose (0) cannot be known, and is the default.
    """
    document, _ = _read(config or environ.get("SLUICE_CONFIG", ""))
    admin = _section(document.get("admin"))
    admin |= _section(_parsed(environ.get("SLUICE_ADMIN", "")))
    probes = _section(admin.get("probes")) | _section(_parsed(environ.get("SLUICE_ADMIN__PROBES", "")))
    host = environ.get("SLUICE_ADMIN__BIND_HOST", admin.get("bind_host"))
    host = str(environ.get("SLUICE_ADMIN__PROBES__BIND_HOST", probes.get("bind_host")) or host or "")
    port = _number(environ.get("SLUICE_ADMIN__PROBES__BIND_PORT", probes.get("bind_port")))
    if not port:
        admin_port = _number(environ.get("SLUICE_ADMIN__BIND_PORT", admin.get("bind_port")))
        port = DEFAULT_PORT
        if admin_port:
            port = admin_port + 1 if admin_port < _LAST_PORT else _LAST_PORT - 1
    return dialled(host), port


def dialled(host: str) -> str:
    """Where this machine reaches what listens at `host`."""
    return _ANY_ADDRESS.get(host, host)


def _number(value: Any) -> int:
    with suppress(TypeError, ValueError, OverflowError):
        return int(value)
    return 0


def failure(host: str, port: int) -> str | None:
    """Why a proxy with this probe port is not alive; None if it is."""
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", "/livez")
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"/livez at {host}:{port}: {told.lower()}"
    return None if status == http.client.OK else f"/livez at {host}:{port} answers {status}"


def _read(file: str) -> tuple[dict[str, Any], str]:
    """What is in the configuration file, and why nothing is. What is no file is not opened: a pipe would
    keep the check waiting for whoever writes into it."""
    if not file:
        return {}, ""
    try:
        if not S_ISREG(os.stat(file).st_mode):
            return {}, f"{file} is no file"
        with open(file, encoding="utf-8") as opened:
            document = _parsed(opened.read())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        return {}, f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
    return (document, "") if isinstance(document, dict) else ({}, f"{file} is no configuration")


def _parsed(text: str) -> Any:
    with suppress(yaml.YAMLError, ValueError, RecursionError):  # of a date that is none, of 3,000 brackets
        return yaml.safe_load(text)
    return None


def _section(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def main(config: str = "") -> NoReturn:
    """Exit with code 0 if the proxy is alive, else with 1 and the reason on standard error.

    `config`: its configuration file; else the one that SLUICE_CONFIG names.
    """
    config = config or os.environ.get("SLUICE_CONFIG", "")
    reason = failure(*probe_address(os.environ, config))
    if reason is not None and (why_passed_over := _read(config)[1]):
        reason += f" ({why_passed_over})"
    sys.exit(reason)
