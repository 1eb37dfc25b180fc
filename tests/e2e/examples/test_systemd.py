"""The systemd example as it stands: what sluice.service starts, with a client, and what it must not do."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.clients.kafka_records import numbered
from testkit.examples.bite import MIB, least_s, produced_exactly, throttled_s
from testkit.examples.stage import Stage
from testkit.examples.systemd import UnitProxy, unit

pytestmark = [pytest.mark.kafka, pytest.mark.long]
Unique = Callable[[str], str]


READ_ONLY = f"""
mount --make-rprivate /
for folder in "$FOLDER"/var/log/sluice "$FOLDER"/var/lib/sluice; do mount --bind "$folder" "$folder"; done
mount --options remount,bind,ro /
mount --types proc --options {"subset=pid" if "ProcSubset" in unit("sluice.service") else "rw"} proc /proc
exec "$@"
"""
"""what systemd makes of ProtectSystem=strict and ProcSubset, before it starts the command"""


def forbidden_calls() -> list[str]:
    """The system calls that SystemCallFilter lets nobody make."""
    allowed: set[str] = set()
    for value in ["@default", *unit("sluice.service")["SystemCallFilter"]]:
        named = set().union(*(calls_of(name) for name in value.removeprefix("~").split()))
        allowed = allowed - named if value.startswith("~") else allowed | named
    return sorted(calls_of("@known") - allowed)


def calls_of(name: str) -> set[str]:
    """Those of a group, groups in it included."""
    if not name.startswith("@"):
        return {name}
    told = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
    ).stdout
    inside = (line.strip() for line in told.splitlines()[1:])
    return set().union(*(calls_of(one) for one in inside if one and not one.startswith("#")))


def test_what_the_unit_starts_holds_clients_to_their_quota_and_keeps_a_log(
    stage: Stage, unique: Unique
) -> None:
    records = numbered(6_000, size_bytes=1_000)  # as in test_compose.py
    with UnitProxy(stage.broker.ports) as proxy:
        took_s = produced_exactly(stage.broker, proxy, unique("demo"), records)
        assert took_s > least_s(6_000_000, MIB)
        assert throttled_s(proxy) > 0
        (line, *_) = proxy.log_lines("listening")  # SLUICE_LOG__FORMAT of the file of variables
        assert line["listener"] == "clients"
        maps = Path(f"/proc/{proxy.process.pid}/maps").read_text(encoding="utf-8")
        assert not [line for line in maps.splitlines() if "wx" in line.split()[1]], "MemoryDenyWriteExecute"
        assert proxy.stop() == 0
        assert [*(proxy.folder / "var/log/sluice/rollup").rglob("*.parquet")]
        proxy.start()  # what the `with` block ends in order


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system read-only, as root alone may")
def test_it_works_where_it_can_write_to_the_units_own_folders_alone(stage: Stage, unique: Unique) -> None:
    found = unit("sluice.service")
    assert found["ProtectSystem"] == ["strict"]
    with UnitProxy(stage.broker.ports, ("unshare", "--mount", "sh", "-euc", READ_ONLY, "sh")) as proxy:
        assert Path(f"/proc/{proxy.process.pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        mounted = Path(f"/proc/{proxy.process.pid}/mounts").read_text(encoding="utf-8").splitlines()
        assert any(line.split()[1] == "/" and line.split()[3].startswith("ro,") for line in mounted)
        produced_exactly(stage.broker, proxy, unique("demo"), numbered(300))
        for name in ("process_cpu_seconds_total", "process_resident_memory_bytes"):
            assert proxy.metric(name) > 0, f"{name}, which alerts and dashboard ask for"
        assert proxy.stop() == 0
        assert [*(proxy.folder / "var/log/sluice/rollup").rglob("*.parquet")]
        assert proxy.log_lines("access_log_failing") == []
        proxy.start()


@pytest.mark.skipif(
    shutil.which("strace") is None or shutil.which("systemd-analyze") is None,
    reason="strace or systemd-analyze is not installed (Debian: strace, systemd)",
)
def test_no_system_call_that_the_unit_forbids_is_made(stage: Stage, unique: Unique, tmp_path: Path) -> None:
    told = tmp_path / "calls"
    calls = ",".join(f"?{name}" for name in [*forbidden_calls(), "bind"])
    watch = ("strace", "-D", "-f", "-qq", "--seccomp-bpf", f"--trace={calls}", f"--output={told}")
    with UnitProxy(stage.broker.ports, watch) as proxy:
        produced_exactly(stage.broker, proxy, unique("demo"), numbered(300))
        assert proxy.stop() == 0
        made = told.read_text(encoding="utf-8").splitlines()
        assert any(" bind(" in line for line in made), "the watch sees what it is told to"
        assert [line for line in made if " bind(" not in line and "(" in line] == []
        proxy.start()
