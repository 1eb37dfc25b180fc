"""What the broker says its threads spent on a client id: JMX, read through Kafka's own JmxTool.

The attribute request-time of `kafka.server:type=Request` is Kafka's Rate in percent of one thread, with
quota.window.num (11) windows of quota.window.size.seconds (1 s): all that was recorded in them, divided by 10
to 11 s. While nothing is added the dividend stays and the divisor runs through these once a second, so that
the highest of the values read in a second is the sum ÷ 10 s:

    read every 0.1 s: 1.91, 1.89, 2.00, 1.98 …   2.00 % of 10 s are 200 ms of threads
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from typing import Final

from sluice.proxy.calibration.rig import CalibrationError

WINDOW_S: Final = 10.0
"""(quota.window.num − 1) · quota.window.size.seconds, with Kafka's defaults"""
_READ_FOR_S: Final = 1.3
_INTERVAL_MS: Final = 100
_START_WITHIN_S: Final = 30.0
_LINE: Final = re.compile(
    r'^(?:"?)kafka\.server:type=Request,.*?client-id="?([^,":]+)"?.*?:request-time[,"=]+([^"]+)"?$'
)


def parse_line(line: str) -> tuple[str, float] | None:
    """(client id, request-time in percent) of a line of JmxTool's report, if it is one."""
    found = _LINE.match(line.strip())
    if found is None:
        return None
    try:
        return found[1], float(found[2])
    except ValueError:
        return None


def read_request_ms(command: Sequence[str], url: str, client_ids: Sequence[str]) -> dict[str, float]:
    """ms of threads that each client id has cost within the last ten seconds.

    `command`: JmxTool (bin/kafka-jmx.sh). Raises CalibrationError if it does not tell of all of them.
    """
    arguments = [*command, "--jmx-url", url, "--attributes", "request-time"]
    arguments += ["--reporting-interval", str(_INTERVAL_MS), "--report-format", "csv"]
    for client_id in client_ids:
        arguments += ["--object-name", f"kafka.server:type=Request,client-id={client_id},*"]
    highest: dict[str, float] = {}
    try:
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
        )
    except OSError as error:
        raise CalibrationError(f"{command[0]} cannot be run ({error}); see --jmx-command") from None
    with process:
        assert process.stdout is not None
        try:
            begun_s = time.monotonic()
            until_s = begun_s + _START_WITHIN_S
            for line in process.stdout:
                parsed = parse_line(line)
                if parsed is not None:
                    if not highest:
                        until_s = time.monotonic() + _READ_FOR_S
                    highest[parsed[0]] = max(highest.get(parsed[0], 0.0), parsed[1])
                if time.monotonic() > until_s:
                    break
        finally:
            process.kill()
    missing = [client_id for client_id in client_ids if not highest.get(client_id)]
    if missing:
        raise CalibrationError(
            f"JMX tells no request-time of {missing[0]} (is the broker's port {url}? JmxTool exited with "
            f"{process.returncode})"
        )
    return {client_id: highest[client_id] / 100.0 * WINDOW_S * 1000.0 for client_id in client_ids}
