"""What the proxy tells of a fault: lines of its log, metrics, readiness; and when it told first."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

_LOOK_S: Final = 0.25
_ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Metric:
    """A sample whose rise tells: the sum of those that have these labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels.items())
        return f"{self.name}{{{labels}}}" if labels else self.name


@dataclass(frozen=True, slots=True)
class Tells:
    """What would tell of one fault, and of no other that may happen at the same time."""

    events: Sequence[str] = ()
    """of the log, at level warning or error"""
    metrics: Sequence[Metric] = ()
    ready: str = ""
    """a part of a reason that /readyz gives"""
    gone: bool = False
    """the probe's port refuses: the process is not there, which an orchestrator sees"""


@dataclass(slots=True)
class Told:
    """What was told, each with the seconds from the fault's begin."""

    by: dict[str, float] = field(default_factory=dict)
    besides: dict[str, int] = field(default_factory=dict)
    """other lines at level warning or error: event → how often"""


Samples = list[tuple[str, dict[str, str], float]]


class Admin:
    """The two ports that an operator asks."""

    def __init__(self, admin: str, probes: str, token: str) -> None:
        self._admin = admin
        self._probes = probes
        self._token = token

    def ready(self) -> tuple[bool, str]:
        """Whether, and why not. Raises OSError if nobody answers."""
        try:
            with urllib.request.urlopen(f"{self._probes}/readyz", timeout=_ANSWER_S):
                return True, ""
        except urllib.error.HTTPError as error:
            with error:
                return False, error.read().decode()

    def samples(self) -> Samples:
        """The samples at /metrics. Raises OSError."""
        with urllib.request.urlopen(f"{self._admin}/metrics", timeout=_ANSWER_S) as answer:
            text = answer.read().decode()
        return [
            (sample.name, dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def ask_with_token(self) -> None:
        """As whoever looks at the status page: its token is looked at when it is asked for."""
        request = urllib.request.Request(
            f"{self._admin}/api/v1/summary", headers={"Authorization": f"Bearer {self._token}"}
        )
        try:
            urllib.request.urlopen(request, timeout=_ANSWER_S).close()
        except urllib.error.HTTPError as error:
            error.close()


def value_of(samples: Samples, metric: Metric) -> float:
    """The sum of a metric's samples."""
    return sum(
        x for name, labels, x in samples if name == metric.name and metric.labels.items() <= labels.items()
    )


class Watch:
    """Looks until `stop`. What it has seen stands in `told`."""

    def __init__(self, admin: Admin, log: Path, tells: Tells) -> None:
        self._admin = admin
        self._log = log
        self._tells = tells
        self._before = [(metric, self._value(metric)) for metric in tells.metrics]
        self._read_bytes = log.stat().st_size
        self._rest = b""
        self._begun_s = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.told = Told()

    def start(self) -> None:
        self._begun_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """One more look, the last."""
        self._stop.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        for look in (self._look_at_log, self._look_at_readiness, self._look_at_metrics):
            self._quietly(look)
        if "status_token_not_applied" in self._tells.events:
            self._quietly(self._admin.ask_with_token)

    def _quietly(self, look: Callable[[], None]) -> None:
        try:
            look()
        except ConnectionError:
            self._seen_gone()
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionError):
                self._seen_gone()
        except OSError:
            return  # no answer in time: nothing was told

    def _seen_gone(self) -> None:
        if self._tells.gone:
            self._tell("readiness: nobody answers the probe")

    def _look_at_log(self) -> None:
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        self._read_bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            entry = _entry(line)
            if entry.get("level") not in {"warning", "error", "critical"}:
                continue
            event = str(entry.get("event"))
            if event in self._tells.events:
                self._tell(f"log: {event}")
            else:
                self.told.besides[event] = self.told.besides.get(event, 0) + 1

    def _look_at_readiness(self) -> None:
        ready, why = self._admin.ready()
        if not ready and self._tells.ready and self._tells.ready in why:
            self._tell("readiness: 503")

    def _look_at_metrics(self) -> None:
        samples = self._admin.samples()
        for metric, before in self._before:
            if value_of(samples, metric) > before:
                self._tell(f"metric: {metric}")

    def _value(self, metric: Metric) -> float:
        return value_of(self._admin.samples(), metric)

    def _tell(self, what: str) -> None:
        self.told.by.setdefault(what, round(time.monotonic() - self._begun_s, 2))


def _entry(line: bytes) -> dict[str, Any]:
    if not line.startswith(b"{"):
        return {}
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
