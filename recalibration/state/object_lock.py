"""One night at a time in an object store that refuses to make an object twice, as S3 does (If-None-Match).

    OUT/.night/NUMBER   who holds the lock, rewritten each minute; empty: given back

Who wants it makes the number after the highest, if that one is given back or was not rewritten for a quarter
of an hour, by the store's own clock: its machine died. Of several who try, the store lets one. The highest
number is never removed, or somebody who has looked long ago could make it again; lower ones are.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Final

from pyarrow import fs

from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.state.run_lock import AnotherNightError

RENEW_S: Final = 60.0
STALE_S: Final = 900.0
_FOLDER: Final = ".night"
Create = Callable[[str, bytes], bool]
"""(URI, content) → whether it was made; False: it is there"""


@contextmanager
def object_lock(
    out: str, create: Create, *, renew_s: float = RENEW_S, stale_s: float = STALE_S
) -> Iterator[None]:
    """Held while the body runs. Raises AnotherNightError if another has it, and what `create` raises."""
    place = LogFolder.of(out)
    folder = f"{place.root.rstrip('/')}/{_FOLDER}"
    numbers = _numbers(place, folder)
    last = max(numbers, default=0)
    if last:
        _refuse_if_held(place, folder, last, stale_s, out)
    own = f"{folder}/{last + 1}"
    content = f"process {os.getpid()} on {socket.gethostname()}, {token_hex(4)}\n".encode()
    # What an answer that was lost has made, the client's second try finds there: it is ours.
    if not create(f"{place.scheme}{own}", content) and _read(place, own) != content:
        raise AnotherNightError(f"{out}: another night has begun here at this moment")
    if max(_numbers(place, folder)) > last + 1:  # we had looked long ago, and made what was removed meanwhile
        place.filesystem.delete_file(own)
        raise AnotherNightError(f"{out}: another night runs here")
    for number in numbers:
        with suppress(OSError):  # its night has ended, or removes it itself
            place.filesystem.delete_file(f"{folder}/{number}")
    ended = threading.Event()
    renewal = threading.Thread(
        target=_renew, args=(place, own, content, ended, renew_s), name="night-lock", daemon=True
    )
    renewal.start()
    try:
        yield
    finally:
        ended.set()
        renewal.join()
        _write(place, own, b"")


def _refuse_if_held(place: LogFolder, folder: str, number: int, stale_s: float, out: str) -> None:
    path = f"{folder}/{number}"
    try:
        whose = _read(place, path).decode(errors="replace").strip()
    except FileNotFoundError:  # who comes next removes it
        raise AnotherNightError(f"{out}: another night has begun here at this moment") from None
    if not whose:
        return
    # Times by one clock: the store's.
    probe = f"{folder}/now-{token_hex(8)}"
    _write(place, probe, b"")
    now, then = place.filesystem.get_file_info([probe, path])
    place.filesystem.delete_file(probe)
    age_s = (now.mtime_ns - then.mtime_ns) / 1e9 if now.mtime_ns and then.mtime_ns else 0.0
    if age_s < stale_s:
        raise AnotherNightError(f"{out}: another night runs here ({whose}); wait for its end")


def _renew(place: LogFolder, path: str, content: bytes, ended: threading.Event, every_s: float) -> None:
    while not ended.wait(every_s):
        with suppress(OSError):  # the next one may pass: there are many before it is too late
            _write(place, path, content)


def _read(place: LogFolder, path: str) -> bytes:
    with place.filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())


def _write(place: LogFolder, path: str, content: bytes) -> None:
    with place.filesystem.open_output_stream(path) as stream:
        stream.write(content)


def _numbers(place: LogFolder, folder: str) -> list[int]:
    found = place.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [int(info.base_name) for info in found if info.base_name.isdecimal()]
