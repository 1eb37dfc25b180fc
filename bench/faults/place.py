"""Where the proxy runs: a mount namespace with a small disk, a hosts file and a resolver of its own.

So a disk can be filled and a name server can hang without the machine noticing. The server is a UDP socket
that reads nothing; the broker's name stands in the hosts file until a fault takes it out.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from testkit.processes.guarded_process import GuardedProcess, log_tail, wait_for_line
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

BROKER_NAME: Final = "kafka.broker.test"
DISK_BYTES: Final = 2 * 1024 * 1024
_RESOLVER: Final = "127.0.0.77"
_FILLER: Final = ".filler"
_STARTS_WITHIN_S: Final = 10.0


class Place:
    """The namespace, held open by a process that sleeps. Ends with `close`."""

    def __init__(self, folder: Path) -> None:
        """Raises BenchError if it cannot be had: it takes root."""
        self.disk = folder / "disk"
        self.disk.mkdir()
        self._hosts = folder / "hosts"
        self.name_is_known(True)
        (folder / "resolv.conf").write_text(f"nameserver {_RESOLVER}\n")
        (folder / "nsswitch.conf").write_text("hosts: files dns\n")
        self._server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        log = folder / "place.log"
        try:
            self._server.bind((_RESOLVER, 53))
        except OSError as error:
            raise BenchError(
                f"no name server can be set up at {_RESOLVER}:53 ({error}): run as root"
            ) from None
        mounts = [f"mount -t tmpfs -o size={DISK_BYTES} none {shlex.quote(str(self.disk))}"]
        for name in ("hosts", "resolv.conf", "nsswitch.conf"):
            mounts.append(f"mount --bind {shlex.quote(str(folder / name))} /etc/{name}")
        script = " && ".join([*mounts, "echo mounted", "exec sleep infinity"])
        self._holder = GuardedProcess(["unshare", "--mount", "sh", "-c", script], output=log)
        try:
            wait_for_line(self._holder, log, "mounted", _STARTS_WITHIN_S)
        except RuntimeError as error:
            self.close()
            raise BenchError(f"no mount namespace: {error}; {log_tail(log)}") from None

    def close(self) -> None:
        """May be called twice."""
        self._holder.close()
        self._server.close()

    def command(self, command: Sequence[str], environ: Mapping[str, str]) -> list[str]:
        """What runs `command` there."""
        pairs = [f"{name}={value}" for name, value in environ.items()]
        enter = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", f"--wd={os.getcwd()}"]
        return [*enter, "env", *pairs, *command]

    def python(self, module: str, *arguments: str) -> list[str]:
        """What runs a module of this checkout there."""
        root = str(Path(__file__).parents[2])
        return self.command([sys.executable, "-m", module, *arguments], {"PYTHONPATH": root})

    def name_is_known(self, known: bool) -> None:
        """Whether the broker's name needs no name server. Written in place: the file is mounted."""
        line = f"{LOOPBACK} {BROKER_NAME}\n" if known else ""
        self._hosts.write_text(f"{LOOPBACK} localhost\n{line}")

    def fill_disk(self) -> None:
        """Not one more byte fits."""
        with suppress(OSError), self._seen(_FILLER).open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def empty_disk(self) -> None:
        """What filled it goes."""
        self._seen(_FILLER).unlink(missing_ok=True)

    def _seen(self, name: str) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{self.disk}") / name
