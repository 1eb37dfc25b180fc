#!/usr/bin/env python3
"""A new user's machine: a Debian with python3 and make, a clone, `make demo` and `make test`.

The root is made by debootstrap, the clone has what is committed, and nothing of this machine's caches is seen
inside: packages, Kafka's jars and Java are fetched as they would be there.
"""

# debian: debootstrap debian-archive-keyring git
# limit: 3600 s
# on request

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from clean_root import CleanRootError, entered, make_debian, remove_root
from image_build import CACHE, REPOSITORY, need_root, network_of_the_machine, work_folder

WORK: Final = work_folder("fresh")
RELEASE: Final = "bookworm"
"""with the oldest Python that is supported, 3.11"""
PACKAGES: Final = "python3 python3-venv make ca-certificates"
"""what the README says is needed, and nothing else"""
HOME: Final = "/root"
CLONE: Final = "/srv/sluice"
COMMANDS: Final = ("make demo", "make test")
KEEP: Final = {"TERM": "dumb", "COLUMNS": "120", "HOME": HOME, "PATH": "/usr/local/bin:/usr/bin:/bin:/sbin"}


def main() -> None:
    need_root()
    root = WORK / "root"
    if root.exists():
        remove_root(root)
    WORK.mkdir(parents=True, exist_ok=True)
    make_debian(RELEASE, root, CACHE / "debian")
    # debootstrap leaves it to the installer, and engines bring their own.
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost\n", encoding="utf-8")
    install = f"apt-get install -qq -y --no-install-recommends {PACKAGES}"
    run(root, f"apt-get update -qq && {install}", "/", quiet=True)
    target = root / CLONE.lstrip("/")
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{REPOSITORY}", target], check=True)
    shutil.rmtree(target / ".git")  # there is no git inside, as on a machine that got an archive
    for command in COMMANDS:
        run(root, command, CLONE)
    remove_root(root)


def run(root: Path, command: str, folder: str, *, quiet: bool = False) -> None:
    """What it says goes on, unless it is quiet and succeeds. Raises CleanRootError."""
    since = time.monotonic()
    print(f"--- {command}", flush=True)
    with network_of_the_machine(root) as (binds, variables):
        done = subprocess.run(
            entered(root, ["/bin/sh", "-c", command], env={**variables, **KEEP}, workdir=folder, binds=binds),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        said = done.stdout.decode(errors="replace")[-3000:] if quiet else ""
        raise CleanRootError(f"{said}\n{command}: ended with {done.returncode}")
    print(f"--- {command}: {time.monotonic() - since:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except CleanRootError as error:
        sys.exit(str(error))
