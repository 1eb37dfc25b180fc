"""Files → text and limits: the one module of the pure packages that reads a file.

Named as an exception (tools/structure.py), for the proxy and the nightly job read the same files in the same
way, and have nothing else in common that could do it for both. Blocks as long as the file system does.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from sluice.quotas.files.config_error import ConfigError, Problem, QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.limits.limits import QuotaLimits

MAX_QUOTAS_BYTES: Final = 64 * 1024 * 1024
"""of a quota file: more than 500,000 entities"""
MAX_PLAN_BYTES: Final = 8 * MAX_QUOTAS_BYTES
"""a plan tells some 530 bytes of a limit: a million of those that are listed"""
MAX_SMALL_BYTES: Final = 1024 * 1024
"""configuration, credentials, certificates: what people write by hand"""


def read_bytes(file: Path, max_bytes: int) -> bytes:
    """The whole of a regular file. Raises OSError, also for another kind of file and for a larger one.

    A FIFO would never be opened, a device never end: what is no regular file is not read.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:  # for `open` refuses a folder, and leaves it open
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(0, "is a directory", str(file))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "not a regular file", str(file))
        with open(handle, "rb", closefd=False) as opened:
            data = opened.read(max_bytes + 1) if found.st_size <= max_bytes else None
    finally:
        os.close(handle)
    if data is None or len(data) > max_bytes:
        raise OSError(0, f"has more than {max_bytes:,} bytes", str(file))
    return data


def read_text(file: Path, what: str, max_bytes: int = MAX_QUOTAS_BYTES) -> str:
    """The file's text. Raises ConfigError when it cannot be read, is too large or is not UTF-8."""
    try:
        data = read_bytes(file, max_bytes)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError([Problem(f"cannot read the {what} file: {reason}", source=str(file))]) from None
    return text_of(data, str(file))


def text_of(data: bytes, source: str) -> str:
    """Its text, with ends of lines as Python's. Raises ConfigError when it is not UTF-8."""
    try:
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem("not UTF-8", source=source, line=line)]) from None


def read_given(file: Path, what: str, max_bytes: int = MAX_QUOTAS_BYTES) -> str:
    """As read_text, for a command that a person waits for: a pipe (`<(…)`, /dev/stdin) will do as well."""
    with suppress(OSError), file.open("rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return read_piped(opened, str(file), what, max_bytes)
    return read_text(file, what, max_bytes)


def read_piped(pipe: BinaryIO, source: str, what: str, max_bytes: int = MAX_QUOTAS_BYTES) -> str:
    """As read_text, of a pipe that is open. What has more is not cut: up to the cut it may be a good list,
    and whoever stands behind it would lose his limits. Raises OSError when it cannot be read."""
    data = pipe.read(max_bytes + 1)
    if len(data) > max_bytes:
        message = f"cannot read the {what} file: has more than {max_bytes:,} bytes"
        raise ConfigError([Problem(message, source=source)])
    return text_of(data, source)


def load_quotas(file: Path) -> QuotaLimits:
    """The limits in `file`. Raises QuotaFileError when it cannot be read or used."""
    try:
        text = read_text(file, "quota")
    except ConfigError as error:
        raise QuotaFileError(error.problems) from None
    return parse_quotas(text, str(file))
