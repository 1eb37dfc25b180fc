"""The faults: what is done, for how long, what would tell of it, and when it is over."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.faults.rig import PLAIN, Clients, FaultRig
from bench.faults.told import Metric, Tells, value_of
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

HOUR_S: Final = 3600.0
OPEN_FILES: Final = 64
SILENT_CLIENTS: Final = 100
BACK_WITHIN_S: Final = 30.0
_ENCODER, _SENDER = "access-log-encoder", "access-log-sender"

Undo = Callable[[], None]
Well = Callable[[FaultRig], bool]


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the catalogue of faults."""

    name: str
    begin: Callable[[FaultRig, Clients], Undo]
    """does it, and returns what ends it"""
    tells: Tells
    held_s: float = 6.0
    """at least; where it is not told so soon, up to PATIENCE_S"""
    ends_proxy: bool = False
    well: Callable[[], Well] = lambda: lambda rig: True
    """made at the fault's end: what must be as before, besides clients served and /readyz"""


def all_faults(kills: int) -> list[Fault]:
    """Every row, in the order in which they run."""
    return [
        _kills(kills),
        *(_file_fault(what, damage) for what in FOLLOWED for damage in DAMAGES),
        *_certificate_faults(),
        *_clock_faults(),
        *_access_log_faults(),
        Fault(
            f"{OPEN_FILES} descriptors, {SILENT_CLIENTS} silent clients",
            _few_descriptors,
            Tells(events=("accept_failed",)),
        ),
        Fault(
            "DNS hangs",
            _dns_hangs,
            Tells(
                events=("upstream_accepts_slowly", "upstream_unreachable"),
                metrics=(Metric("sluice_upstream_dial_failures_total"),),
                ready="cannot be reached",
            ),
            held_s=12.0,
        ),
        Fault(
            "broker killed, back after 6 s",
            _broker_killed,
            Tells(
                events=("upstream_unreachable",),
                metrics=(Metric("sluice_upstream_dial_failures_total"),),
                ready="cannot be reached",
            ),
        ),
        Fault(
            "broker stopped (SIGSTOP), 50 s",
            _broker_stopped,
            Tells(
                events=("upstream_does_not_answer",),
                metrics=(Metric("sluice_upstream_silent"),),
                ready="has not answered",
            ),
            held_s=50.0,
        ),
    ]


# The proxy --------------------------------------------------------------------------------------------------


def _kills(count: int) -> Fault:
    def begin(rig: FaultRig, clients: Clients) -> Undo:
        for number in range(count):
            rig.sluice.kill()
            time.sleep(0.5)  # what starts it again needs a moment, too
            rig.sluice.start()
            ready_s = time.monotonic()
            while not clients.all_acknowledged_since(ready_s):
                if time.monotonic() > ready_s + BACK_WITHIN_S:
                    raise BenchError(f"clients are not served {BACK_WITHIN_S:.0f} s after kill {number + 1}")
                time.sleep(0.05)
            if (number + 1) % 10 == 0:
                print(f"  {number + 1} kills", flush=True)
        return _nothing

    return Fault(
        f"proxy killed (SIGKILL) × {count}",
        begin,
        Tells(gone=True, events=("access_log_lost",)),
        held_s=0.0,
        ends_proxy=True,
    )


# Files ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Followed:
    """A file that the proxy follows."""

    name: str
    file: Callable[[FaultRig], Path]
    event: str
    metric: str = ""
    """its label `file`; the status page's token has none"""


FOLLOWED: Final[Sequence[Followed]] = (
    Followed(
        "configuration", lambda rig: rig.sluice.config_file, "configuration_not_applied", "configuration"
    ),
    Followed("quota file", lambda rig: rig.files.quotas, "quotas_not_applied", "quotas"),
    Followed(
        "certificate", lambda rig: rig.files.server.certificate, "certificates_not_applied", "certificates"
    ),
    Followed("key", lambda rig: rig.files.server.key, "certificates_not_applied", "certificates"),
    Followed("clients' CA", lambda rig: rig.files.client_ca, "certificates_not_applied", "certificates"),
    Followed("broker's CA", lambda rig: rig.files.upstream_ca, "certificates_not_applied", "certificates"),
    Followed("credentials", lambda rig: rig.files.credentials, "credentials_not_applied", "credentials"),
    Followed("status token", lambda rig: rig.files.token, "status_token_not_applied"),
)


def _garbage(place: Path) -> None:
    place.write_bytes(os.urandom(4096))


def _endless(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _huge(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(4 * 2**30)


DAMAGES: Final[Sequence[tuple[str, Callable[[Path], None]]]] = (
    ("garbage", _garbage),
    ("a FIFO", os.mkfifo),
    ("4 GiB of zeros", _huge),
    ("a link to /dev/zero", _endless),
)


def _file_fault(what: Followed, damage: tuple[str, Callable[[Path], None]]) -> Fault:
    kind, make = damage

    def begin(rig: FaultRig, _: Clients) -> Undo:
        file = what.file(rig)
        kept = file.read_bytes()
        beside = file.with_name(f".{file.name}.damaged")
        make(beside)
        os.replace(beside, file)
        return lambda: rig.files.replace(file, kept)

    metrics = []
    if what.metric:
        metrics.append(Metric("sluice_config_refused", {"file": what.metric}))
    return Fault(
        f"{what.name}: {kind}",
        begin,
        Tells((what.event,), metrics),
        held_s=3.0,
        well=lambda: _no_file_is_refused,
    )


def _no_file_is_refused(rig: FaultRig) -> bool:
    return value_of(rig.admin.samples(), Metric("sluice_config_refused")) == 0.0


# Certificates -----------------------------------------------------------------------------------------------


def _certificate_faults() -> list[Fault]:
    refused = Tells(
        ("certificates_not_applied",), (Metric("sluice_config_refused", {"file": "certificates"}),)
    )
    return [
        Fault(
            "certificate expired",
            _expired,
            Tells(
                ("certificate_expired", "certificates_not_applied"),
            ),
            held_s=4.0,
            well=lambda: _no_file_is_refused,
        ),
        Fault(
            "certificate of another key", _another_key, refused, held_s=4.0, well=lambda: _no_file_is_refused
        ),
        Fault(
            "broker's certificate of a CA that is not ours",
            _foreign_ca,
            Tells(
                ("upstream_unreachable",),
                (Metric("sluice_upstream_dial_failures_total"),),
                "cannot be reached",
            ),
            held_s=5.0,
        ),
    ]


def _swapped(rig: FaultRig, contents: dict[Path, bytes]) -> Undo:
    kept = {file: file.read_bytes() for file in contents}
    for file, content in contents.items():
        rig.files.replace(file, content)

    def undo() -> None:
        for file, content in kept.items():
            rig.files.replace(file, content)

    return undo


def _expired(rig: FaultRig, _: Clients) -> Undo:
    old = rig.files.authority.server(starts_in_days=-30, ends_in_days=-1)
    return _swapped(
        rig, {rig.files.server.certificate: old.certificate_pem, rig.files.server.key: old.key_pem()}
    )


def _another_key(rig: FaultRig, _: Clients) -> Undo:
    other = rig.files.authority.server()
    return _swapped(rig, {rig.files.server.certificate: other.certificate_pem})


def _foreign_ca(rig: FaultRig, _: Clients) -> Undo:
    return _swapped(rig, {rig.files.upstream_ca: rig.files.foreign.certificate_pem})


# Clock ------------------------------------------------------------------------------------------------------


def _clock_faults() -> list[Fault]:
    return [
        Fault(
            f"clock {hours:+d} h",
            partial(_clock_off, by_s=hours * HOUR_S),
            Tells(("clock_jumped",)),
        )
        for hours in (1, -1, 24, -24)
    ]


def _clock_off(rig: FaultRig, _: Clients, by_s: float) -> Undo:
    rig.shift_clock(by_s)
    return lambda: rig.shift_clock(0.0)


# Access log -------------------------------------------------------------------------------------------------


def _access_log_faults() -> list[Fault]:
    dropped = Metric("sluice_access_log_rows_dropped_total")
    failing = (Metric("sluice_access_log_failures_total"), dropped)
    faults = [
        Fault(
            "disk of the access log full",
            _disk_full,
            Tells(("access_log_failing", "access_log_rows_dropped"), failing),
            well=_log_is_written,
        )
    ]
    for thread in (_ENCODER, _SENDER):
        task = Metric("sluice_task_restarts_total", {"task": thread.replace("-", "_")})
        faults.append(
            Fault(
                f"thread {thread} killed",
                partial(_thrown, thread=thread),
                Tells(("task_failed",), (task,)),
                well=_log_is_written,
            )
        )
    return faults


def _log_is_written() -> Well:
    """Whether rows have been written since this was asked first."""
    first: list[float] = []

    def well(rig: FaultRig) -> bool:
        rows = value_of(rig.admin.samples(), Metric("sluice_access_log_rows_written_total"))
        first.append(rows)
        return rows > first[0]

    return well


def _disk_full(rig: FaultRig, _: Clients) -> Undo:
    rig.place.fill_disk()
    return rig.place.empty_disk


def _thrown(rig: FaultRig, _: Clients, thread: str) -> Undo:
    rig.throw_in(thread)
    return _nothing


# Its surroundings -------------------------------------------------------------------------------------------


def _few_descriptors(rig: FaultRig, _: Clients) -> Undo:
    """The limit is lowered while it runs (prlimit), which counts for every descriptor from then on."""
    pid = rig.sluice.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (OPEN_FILES, before[1]))
    address = (LOOPBACK, rig.kafka.advertised(PLAIN)[1])
    silent = [socket.create_connection(address, 5.0) for _ in range(SILENT_CLIENTS)]

    def undo() -> None:
        for one in silent:
            one.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    return undo


def _dns_hangs(rig: FaultRig, _: Clients) -> Undo:
    rig.place.name_is_known(False)
    return lambda: rig.place.name_is_known(True)


def _broker_killed(rig: FaultRig, _: Clients) -> Undo:
    rig.kafka.stop(graceful=False)
    return rig.kafka.start


def _broker_stopped(rig: FaultRig, _: Clients) -> Undo:
    os.kill(rig.kafka.pid, signal.SIGSTOP)
    return lambda: os.kill(rig.kafka.pid, signal.SIGCONT)


def _nothing() -> None:
    pass
