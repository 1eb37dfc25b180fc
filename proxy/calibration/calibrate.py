"""`sluice calibrate-cost`: drives a broker, reads its own request-time, fits the costs, tells their error.

Every load has a client id of its own, so that the broker's figure is the load's. A load runs for some
seconds; then the figures of a few loads are read at once, before the broker's windows forget them. Rounds go
through all loads again. What is written is fitted to the loads; the error that is told is of mixes that it
was not fitted to.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from sluice.proxy.calibration.fit import Kind, Measured, fit_all, lower_half, tls_extra, typical
from sluice.proxy.calibration.jmx import read_request_ms
from sluice.proxy.calibration.plan import Load, Mix, loads, mixes
from sluice.proxy.calibration.request_cost_file import CODECS, CostTables, api_key_of, parse_request_costs
from sluice.proxy.calibration.rig import BrokerLink, CalibrationError, Driven, Rig, drive, drive_together
from sluice.usage.request_cost import Coefficients, RequestCosts, request_cost_ms

_FORGOTTEN_AFTER_S: Final = 10.0
"""The broker's windows, less what reading may take."""
_LOADS_AT_ONCE: Final = 2
_TRIES: Final = 4
_PAUSE_S: Final = 0.002
"""behind each answer, in every second round: between flat out and that lies what brokers see"""
_KIB: Final = 1024
_TLS_LOADS: Final = (
    "Produce none 1×1×1000 B",
    "Produce none 1×60×1000 B",
    "Produce none 1×4×100000 B",
    "Fetch 1000 B",
    "Fetch 100000 B",
    "Fetch 1000000 B",
    "Heartbeat",
    "Metadata 60",
)
_API_KEYS: Final = {"Produce": 0, "Fetch": 1}


@dataclass(frozen=True, slots=True)
class Target:
    """The broker, and where its JMX is."""

    host: str
    port: int
    jmx_command: tuple[str, ...]
    jmx_url: str
    tls: ssl.SSLContext | None = None

    def dial(self) -> BrokerLink:
        """Open a new connection to the broker."""
        return BrokerLink(self.host, self.port, self.tls)


@dataclass(frozen=True, slots=True)
class MixResult:
    """How far the costs are from what the broker says of a mix."""

    name: str
    requests: int
    measured_ms: float
    """of all its requests"""
    model_ms: float

    @property
    def error(self) -> float:
        """Relative: 0.1 says that the model asks a tenth too much."""
        return self.model_ms / self.measured_ms - 1.0


@dataclass(frozen=True, slots=True)
class DrivenMix:
    """A mix that was driven, and what the broker says of it."""

    name: str
    driven: Sequence[Driven]
    measured_ms: float

    def judged(self, costs: RequestCosts) -> MixResult:
        """How far these costs are from it."""
        requests = sum(one.requests for one in self.driven)
        return MixResult(
            self.name, requests, self.measured_ms, sum(model_cost_ms(costs, one) for one in self.driven)
        )


def say(text: str) -> None:
    """Tell people of the progress."""
    print(text, file=sys.stderr, flush=True)


class Calibration:
    """One run against one broker."""

    def __init__(self, target: Target, load_s: float) -> None:
        self._target = target
        self._load_s = load_s

    def measure(self, rounds: int, chosen: Callable[[Load], bool] = lambda _: True) -> list[Measured]:
        """All loads, `rounds` times, after one round that only warms the broker up."""
        run = uuid.uuid4().hex[:8]
        with self._target.dial() as link, Rig(link, self._target.host, self._target.port, run) as rig:
            wanted = [load for load in loads(rig.names) if chosen(load)]
            self._warm_up(rig, wanted)
            found = []
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}: {len(wanted)} loads")
                pause_s = _PAUSE_S if number % 2 else 0.0
                for first in range(0, len(wanted), _LOADS_AT_ONCE):
                    found += self._measure_together(rig, wanted[first : first + _LOADS_AT_ONCE], pause_s)
            return found

    def drive_mixes(self, rounds: int, chosen: Callable[[Mix], bool] = lambda _: True) -> list[DrivenMix]:
        """The mixes, `rounds` times."""
        run = uuid.uuid4().hex[:8]
        found = []
        with self._target.dial() as link, Rig(link, self._target.host, self._target.port, run) as rig:
            wanted = [mix for mix in mixes(rig.names) if chosen(mix)]
            self._warm_up(rig, [load for mix in wanted for load in mix.loads])
            for number in range(rounds):
                say(f"mixes, round {number + 1} of {rounds}")
                found += [self._drive_mix(rig, mix) for mix in wanted]
        return found

    def _warm_up(self, rig: Rig, wanted: Sequence[Load]) -> None:
        """A JVM that has just started takes many times as long for each request."""
        say("warming the broker up")
        (client_id,) = rig.client_ids(1)
        with self._target.dial() as link:
            for load in wanted:
                drive(link, load, client_id, self._load_s)

    def _measure_together(self, rig: Rig, wanted: Sequence[Load], pause_s: float) -> list[Measured]:
        for _ in range(_TRIES):
            client_ids = rig.client_ids(len(wanted))
            time.sleep(0.1)  # the quota comes to the broker through its log
            begun_s = time.monotonic()
            driven = []
            with self._target.dial() as link:
                for load, client_id in zip(wanted, client_ids, strict=True):
                    driven.append(drive(link, load, client_id, self._load_s, pause_s))
            cost_ms = read_request_ms(self._target.jmx_command, self._target.jmx_url, client_ids)
            if time.monotonic() - begun_s < _FORGOTTEN_AFTER_S:
                return [
                    one.measured(cost_ms[client_id])
                    for one, client_id in zip(driven, client_ids, strict=True)
                ]
        raise CalibrationError("reading JMX takes so long that the broker forgets; is the machine busy?")

    def _drive_mix(self, rig: Rig, mix: Mix) -> DrivenMix:
        for _ in range(_TRIES):
            (client_id,) = rig.client_ids(1)
            time.sleep(0.1)
            begun_s = time.monotonic()
            driven = drive_together(self._target.dial, mix.loads, client_id, 2 * self._load_s, mix.pause_s)
            measured = read_request_ms(self._target.jmx_command, self._target.jmx_url, [client_id])
            if time.monotonic() - begun_s < _FORGOTTEN_AFTER_S:
                return DrivenMix(mix.name, driven, measured[client_id])
        raise CalibrationError("reading JMX takes so long that the broker forgets; is the machine busy?")


def model_cost_ms(costs: RequestCosts, driven: Driven) -> float:
    """What the costs ask for these requests, as a session would charge them."""
    load = driven.load
    codec = CODECS.index(load.kind.compression) if load.kind.compression else 0
    frame = load.frame_of("x")
    api_key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
    coefficients = costs.of(api_key, version, codec, load.acks_all)
    request_bytes = driven.request_bytes // driven.requests
    response_bytes = driven.response_bytes // driven.requests
    return sum(
        request_cost_ms(coefficients, request_bytes, response_bytes, upstream_ms, load.batches, load.records)
        for upstream_ms in driven.upstream_ms
    )


def cost_file_text(found: Mapping[Kind, Coefficients], tls: Coefficients, measured: str) -> str:
    """The file of request costs (request_cost_file.py)."""
    lines = [
        "# What requests cost a broker's network and I/O threads, in microseconds: of one request, of 1,024",
        "# bytes, of a record batch, of a record. Made by `sluice calibrate-cost`.",
        f"measured: {json.dumps(measured, ensure_ascii=False)}",
        f"tls: {_entry(tls, {})}",
        "costs:",
    ]
    for kind, coefficients in found.items():
        names = {"api": kind.api}
        if kind.compression is not None:
            names["compression"] = kind.compression
        lines.append(f"  - {_entry(coefficients, names)}")
    produced = [value for kind, value in found.items() if kind.api == "Produce"]
    if produced:  # of a codec that could not be measured
        lines.append(f"  - {_entry(typical(produced), {'api': 'Produce'})}")
    others = [value for kind, value in found.items() if kind.api not in _API_KEYS]
    lines.append(f"  - {_entry(typical(others or found.values()), {})}")
    return "\n".join(lines) + "\n"


def _entry(coefficients: Coefficients, names: Mapping[str, str]) -> str:
    values = {
        "request_us": coefficients.request_ms * 1e3,
        "request_kib_us": coefficients.request_byte_ms * 1e3 * _KIB,
        "response_kib_us": coefficients.response_byte_ms * 1e3 * _KIB,
        "batch_us": coefficients.batch_ms * 1e3,
        "record_us": coefficients.record_ms * 1e3,
    }
    parts = [f"{key}: {name}" for key, name in names.items()]
    parts += [f"{key}: {float(f'{value:.4g}'):g}" for key, value in values.items() if value > 0.0]
    return "{" + ", ".join(parts) + "}"


def calibrate(
    target: Target,
    tls_target: Target | None,
    *,
    load_s: float,
    rounds: int,
    measured: str,
) -> tuple[str, list[Measured], CostTables]:
    """The text of a cost file, what it was fitted to, and its costs. Raises CalibrationError, OSError."""
    found = lower_half(Calibration(target, load_s).measure(rounds))
    tls = Coefficients()
    if tls_target is not None:
        say("the same over TLS")
        over_tls = lower_half(
            Calibration(tls_target, load_s).measure(rounds, lambda load: load.name.startswith(_TLS_LOADS))
        )
        flat_out = {load.name: load for load in found if not load.paced}
        tls = tls_extra(flat_out, {load.name: load for load in over_tls if not load.paced})
    text = cost_file_text(fit_all(found), tls, measured)
    return text, found, parse_request_costs(text, "costs")


def fit_table(found: Iterable[Measured], costs: RequestCosts) -> str:
    """Load by load: what was measured, and what the costs say."""
    lines = [f"{'load':<44} {'measured':>11} {'model':>11} {'error':>7}"]
    for load in found:
        codec = CODECS.index(load.kind.compression) if load.kind.compression else 0
        coefficients = costs.of(api_key_of(load.kind.api), 0, codec)
        model_ms = sum(value * factor for value, factor in zip(load.features, coefficients, strict=True))
        name = f"{load.name}, paced" if load.paced else load.name
        lines.append(
            f"{name:<44} {load.cost_ms * 1e3:>8.1f} µs {model_ms * 1e3:>8.1f} µs "
            f"{model_ms / load.cost_ms - 1.0:>+7.0%}"
        )
    return "\n".join(lines)


def mix_table(results: Iterable[MixResult]) -> str:
    """Mix by mix, the median of its rounds; and over all."""
    by_name: dict[str, list[MixResult]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    lines = [
        f"{'mix':<28} {'requests':>9} {'measured':>11} {'model':>11} {'error':>7}  {'of its rounds':>14}"
    ]
    middle = []
    for name, of_one in by_name.items():
        errors = sorted(result.error for result in of_one)
        middle.append(median(errors))
        requests = sum(result.requests for result in of_one)
        measured_us = sum(result.measured_ms for result in of_one) / requests * 1e3
        model_us = sum(result.model_ms for result in of_one) / requests * 1e3
        lines.append(
            f"{name:<28} {requests:>9} {measured_us:>8.1f} µs {model_us:>8.1f} µs {median(errors):>+7.0%}  "
            f"{errors[0]:>+6.0%} … {errors[-1]:>+5.0%}"
        )
    within = sum(abs(error) <= 0.2 for error in middle)
    lines.append(
        f"within ±20 %: {within} of {len(middle)} mixes; median of |error| {median(map(abs, middle)):.0%}, "
        f"largest {max(map(abs, middle)):.0%}"
    )
    return "\n".join(lines)
