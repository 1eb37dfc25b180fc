"""Follows the file with the status page's token. Blocks as long as the file system does.

A token that cannot be read any more, or is too short, leaves the last good one in force; the log says so.
"""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import Final

from sluice.proxy.admin.status.access import digest_of, is_one_token
from sluice.proxy.config.admin import StatusOptions
from sluice.proxy.runtime.file_work import within
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.watched_file import ReloadOutcome, WatchedFiles, identify
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import MAX_SMALL_BYTES, read_bytes

MIN_TOKEN: Final = 16
"""characters"""
MAX_TOKEN: Final = 4_096

_log = get_logger()


class TokenFile:
    """The file that holds the token, followed: the last good token stays in force."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if it holds no token."""
        self._path = path
        self._watched = WatchedFiles()
        self.digest = _read(path)
        """of the token in force"""
        self._watched.take(identify((path,)), self.digest.hex(), time())
        self._watched.accept(self.digest.hex(), time())

    def hangs(self, error: OSError) -> None:
        """A look has not ended in time."""
        if self._watched.hangs(error, (self._path,)) is not None:
            _log.error("status_token_not_applied", file=str(self._path), problems=[str(error)])

    def look(self) -> None:
        """Take the token anew if the file has changed."""
        seen = identify((self._path,))
        if not self._watched.wants_reading(seen):
            return
        try:
            digest = _read(self._path)
        except ConfigError as error:
            if self._watched.take(seen, error, time()) is not None:
                _log.error("status_token_not_applied", file=str(self._path), problems=str(error).splitlines())
            return
        outcome = self._watched.take(seen, digest.hex(), time())
        if outcome is ReloadOutcome.SUCCESS:
            self._watched.accept(digest.hex(), time())
            self.digest = digest
            _log.info("status_token_changed", file=str(self._path))
        elif outcome is ReloadOutcome.UNCHANGED and self._watched.status.is_back:
            _log.info("status_token_in_force_again", file=str(self._path))


def token_file(options: StatusOptions) -> TokenFile | None:
    """The one that is named. Raises ConfigError if it holds no token."""
    if options.token_file is None:
        return None
    file = options.token_file
    return within(str(file), lambda: TokenFile(file))


def _read(path: Path) -> bytes:
    """The digest of its token. No message shows what is in the file."""
    try:
        token = read_bytes(path, MAX_SMALL_BYTES).decode().strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"cannot read the status page's token: {reason}"
        raise ConfigError([Problem(message, source=str(path))]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem("the status page's token is not UTF-8", source=str(path))]) from None
    if not MIN_TOKEN <= len(token) <= MAX_TOKEN or not is_one_token(token):
        message = (
            f"the status page's token must be one line of {MIN_TOKEN} to {MAX_TOKEN} ASCII characters, "
            "without blanks, and the file holds it alone"
        )
        raise ConfigError([Problem(message, source=str(path))])
    return digest_of(token)
