"""Where the checks' programs are, or how they come: Helm as a Go module, Prometheus from Debian's package.

What is not on the machine is put into the cache folder that all checkouts share ($SLUICE_CACHE, else
~/.cache/sluice); nothing is installed, and no package starts a daemon. A check whose program cannot be had is
not done: NotDone says what is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = Path(os.environ.get("SLUICE_CACHE", Path.home() / ".cache" / "sluice")) / "tools"
HELM_VERSION: Final = "v3.22.0"
_GO_WANTED: Final = (1, 26)
"""what that Helm's go.mod asks for; Debian's golang is older in most releases"""
_BUILD_WITHIN_S: Final = 1500
_NOT_DONE: Final = 3
_FAILED: Final = 1


class NotDone(Exception):
    """Something is missing, which the message names."""


class Failed(Exception):
    """What was checked is not so."""


def run_check(check: Callable[[], str]) -> None:
    """Run a check and end with its exit code; its last line is what `check` returns, or why it did not."""
    try:
        print(check())
    except NotDone as why:
        print(why)
        sys.exit(_NOT_DONE)
    except Failed as why:
        print(why)
        sys.exit(_FAILED)


def output_of(*command: str | Path, cwd: Path | None = None, within_s: float = 300.0) -> str:
    """What a program prints. Raises Failed with all that it said if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        words = " ".join(str(word) for word in command)
        raise Failed(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def go() -> Path:
    """The Go command. Raises NotDone if there is none that is new enough."""
    wanted = f"Go {_GO_WANTED[0]}.{_GO_WANTED[1]} or newer"
    found = shutil.which("go")
    if found is None:
        raise NotDone(f"needs {wanted} to build Helm, and there is no go on the PATH")
    said = output_of(found, "env", "GOVERSION").strip()
    version = re.match(r"go(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _GO_WANTED:
        raise NotDone(f"needs {wanted} to build Helm, and here is {said}")
    return Path(found)


def helm() -> Path:
    """Helm, of one version, so that everybody's messages are the same. The first build takes minutes."""
    program = CACHE / f"helm-{HELM_VERSION}" / "helm"
    if not program.exists():
        print(f"building Helm {HELM_VERSION} with Go, once", flush=True)
        go_install(f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}", program.parent)
    return program


def go_install(package: str, into: Path) -> None:
    """A program of a Go module, checked against Go's checksum database."""
    _go_build(("install", package), into, ROOT)


def go_build(source: Path, into: Path) -> Path:
    """The program of a Go module in this repository, checked against its go.sum."""
    program = into / source.name
    _go_build(("build", "-mod=readonly", "-o", str(program), "."), into, source)
    return program


def _go_build(command: tuple[str, ...], into: Path, cwd: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "GOBIN": str(into),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "",
        "CGO_ENABLED": "0",
    }
    done = subprocess.run(
        [go(), *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_WITHIN_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise NotDone(f"go {' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}")


def prometheus_tool(name: str) -> Path:
    """`promtool`, `prometheus`: the machine's, else of Debian's package, unpacked and not installed."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    unpacked = CACHE / "prometheus"
    program = unpacked / "usr" / "bin" / name
    if not program.exists():
        _unpack("prometheus", unpacked)
    if not program.exists():
        raise NotDone(f"needs {name}: the package prometheus has none")
    return program


def _unpack(package: str, into: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NotDone(f"needs Debian's package {package}, and there is no apt-get")
    downloads = CACHE / "debs"
    downloads.mkdir(parents=True, exist_ok=True)

    def download() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["apt-get", "-qq", "download", package],
            cwd=downloads,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    done = download()
    if done.returncode and os.geteuid() == 0:
        subprocess.run(
            ["apt-get", "-qq", "update"],
            capture_output=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        done = download()
    archives = sorted(downloads.glob(f"{package}_*.deb"))
    if not archives:
        raise NotDone(f"needs Debian's package {package}, which cannot be had: {done.stderr.strip()[-300:]}")
    into.mkdir(parents=True, exist_ok=True)
    output_of("dpkg-deb", "-x", archives[-1], into)
