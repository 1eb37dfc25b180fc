"""Root file systems: Debian's, made from nothing; commands in them; and how large they are.

A clean root is what `debian:<release>-slim` is: debootstrap's minimal variant without documentation (by
debuerreotype's slimify, which makes that image). Needs root, Linux' namespaces, and Debian's mirror as this
machine's apt knows it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_KEPT_OUT: Final = ("doc", "man", "info", "locale", "groff", "lintian", "linda")
"""of /usr/share, by debuerreotype's list; licences (doc/*/copyright) stay"""
_KEPT_S: Final = 24 * 3600.0
"""how long a base is used again: Debian's release changes by points, its fixes come with the next step"""
_DPKG_RULES: Final = "".join(f"path-exclude=/usr/share/{name}/*\n" for name in _KEPT_OUT) + (
    "path-include=/usr/share/doc/*/copyright\npath-include=/usr/share/locale/locale.alias\n"
    "force-unsafe-io\n"  # as in Debian's images for containers: nobody's data is at stake
)
_ENTER: Final = """
set -eu
root=$1 mode=$2 binds=$3
shift 3
mkdir -p "$root/proc" "$root/dev"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
  : > "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mkdir "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
printf '%s\\n' "$binds" | while IFS='|' read -r outside inside how; do
  [ -n "$outside" ] || continue
  mount --bind "$outside" "$root$inside"
  [ "$how" != ro ] || mount -o remount,ro,bind "$root$inside"
done
[ "$mode" = rw ] || mount -o remount,ro,bind "$root"
exec env -i "$@"
"""


class CleanRootError(Exception):
    """A root could not be made, or a command in it failed; the message ends with what it said."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of this machine that is seen inside, where a file or folder must be already."""

    outside: Path
    inside: str
    read_only: bool = True


def mirror() -> str:
    """The address from which this machine's apt has Debian. Raises CleanRootError if it names none."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*")))
        if path.suffix in {".list", ".sources"} and path.is_file()
    ]
    for text in texts:
        found = re.search(r"^(?:URIs:|deb(?: \[.*?\])?) *(\S+/debian)/?(?:\s|$)", text, re.M)
        if found:
            return found[1]
    raise CleanRootError("this machine's apt sources name no mirror of Debian")


def make_debian(release: str, root: Path, cache: Path) -> None:
    """What `debian:<release>-slim` holds, into `root`, a folder that is not there yet.

    Packages are kept in `cache` for the next time, and for a day all of it, packed. Raises CleanRootError.
    """
    packed = cache / f"{release}.tar"
    if packed.exists() and time.time() - packed.stat().st_mtime < _KEPT_S:
        root.mkdir()
        subprocess.run(
            ["tar", "--extract", "--numeric-owner", "--file", packed, "--directory", root], check=True
        )
        return
    packages = cache / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    _make_debian(release, root, packages)
    new = packed.with_suffix(".tar.new")
    subprocess.run(
        ["tar", "--create", "--numeric-owner", "--file", new, "--directory", root, "."], check=True
    )
    new.rename(packed)


def _make_debian(release: str, root: Path, packages: Path) -> None:
    address = mirror()
    command = ["debootstrap", "--variant=minbase", f"--keyring={KEYRING}", f"--cache-dir={packages}"]
    made = subprocess.run([*command, release, root, address], check=False, capture_output=True, text=True)
    if made.returncode:
        raise CleanRootError(f"debootstrap {release}:\n{(made.stdout + made.stderr)[-3000:]}")
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(_DPKG_RULES)
    for name in _KEPT_OUT:
        for path in sorted((root / "usr/share" / name).rglob("*"), reverse=True):
            if path.is_symlink() or (path.is_file() and path.name != "copyright"):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
    for folder in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
        for path in (root / folder).rglob("*"):
            if path.is_file():
                path.unlink()
    (root / "etc/resolv.conf").write_text("")
    base = address.removesuffix("/debian")
    (root / "etc/apt/sources.list").write_text(
        f"deb {address} {release} main\ndeb {address} {release}-updates main\n"
        f"deb {base}/debian-security {release}-security main\n"
    )
    # As in Debian's images for containers: nothing is kept that can be fetched again.
    (root / "etc/apt/apt.conf.d/docker-clean").write_text(
        'APT::Keep-Downloaded-Packages "false";\nAPT::Install-Suggests "false";\n'
        'Acquire::Languages "none";\nAcquire::GzipIndexes "true";\n'
    )


def copy_root(source: Path, target: Path) -> None:
    """A root like another, with owners, times and links."""
    subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True)


def entered(
    root: Path,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    user: str = "0:0",
    workdir: str = "/",
    binds: Sequence[Bind] = (),
    read_only: bool = False,
) -> list[str]:
    """The command that runs `argv` in a root as process 1, in mount and process namespaces of its own.

    /proc and a small /dev are there; the network is the machine's. No privileges can be won.
    """
    listed = "\n".join(f"{b.outside}|{b.inside}|{'ro' if b.read_only else 'rw'}" for b in binds)
    variables = [f"{name}={value}" for name, value in env.items()]
    # By their paths, since what follows env sees the image's PATH.
    setpriv, unshare = (shutil.which(name) or name for name in ("setpriv", "unshare"))
    uid, _, gid = user.partition(":")
    enter = [setpriv, "--no-new-privs", "--", unshare, f"--root={root}", f"--wd={workdir}"]
    enter += [f"--setgid={gid or uid}", f"--setuid={uid}", "--"]
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    mode = "ro" if read_only else "rw"
    inner = [str(root), mode, listed]
    return [*namespaces, "/bin/sh", "-c", _ENTER, "sh", *inner, *variables, *enter, *argv]


def gzip_bytes(root: Path) -> int:
    """How large a root is as one layer: tar, gzip at the level that registries' tools use (6)."""
    tar = subprocess.Popen(
        ["tar", "--create", "--numeric-owner", "--one-file-system", "--sort=name", "--directory", root, "."],
        stdout=subprocess.PIPE,
    )
    with tar:
        assert tar.stdout is not None
        with subprocess.Popen(["gzip", "-6", "-n"], stdin=tar.stdout, stdout=subprocess.PIPE) as packer:
            tar.stdout.close()
            assert packer.stdout is not None
            size = 0
            while piece := packer.stdout.read(1 << 20):
                size += len(piece)
    if tar.returncode or packer.returncode:
        raise CleanRootError(f"tar {tar.returncode}, gzip {packer.returncode}")
    return size


def remove_root(root: Path) -> None:
    """Remove a root, of which nothing is mounted any more: mounts were in namespaces that have ended."""
    if os.path.ismount(root):
        raise CleanRootError(f"{root} is a mount point")
    shutil.rmtree(root, ignore_errors=False)
