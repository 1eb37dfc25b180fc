"""Files → text and limits: the one module of the pure packages that reads a file.

Named as an exception (tools/structure.py), for the proxy and the nightly job read the same files in the same
way, and have nothing else in common that could do it for both. Blocks as long as the file system does.
"""

from __future__ import annotations

from pathlib import Path

from sluice.quotas.files.config_error import ConfigError, Problem, QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.limits.limits import QuotaLimits


def read_text(file: Path, what: str) -> str:
    """The file's text. Raises ConfigError when it cannot be read or is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError([Problem(f"cannot read the {what} file: {reason}", source=str(file))]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem("not UTF-8", source=str(file), line=line)]) from None


def load_quotas(file: Path) -> QuotaLimits:
    """The limits in `file`. Raises QuotaFileError when it cannot be read or used."""
    try:
        text = read_text(file, "quota")
    except ConfigError as error:
        raise QuotaFileError(error.problems) from None
    return parse_quotas(text, str(file))
