"""The small JSON files that nights leave beside states: written whole or not at all, and read with a check.

A night that was killed, or a full disk, must not leave half a file: each later night would end there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from pyarrow import fs

from sluice.quotas.files.json_text import parse_json
from sluice.recalibration.log.reader import LogFolder

_Content = TypeVar("_Content")


def write_json(place: LogFolder, path: str, content: object) -> None:
    """Write it beside, and move it there. Raises OSError."""
    place.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    beside = f"{path}.new"
    with place.filesystem.open_output_stream(beside) as file:
        file.write(json.dumps(content, ensure_ascii=False).encode())
    place.filesystem.move(beside, path)


def read_json(
    place: LogFolder, path: str, taken: Callable[[dict[str, Any]], _Content], otherwise: _Content
) -> _Content:
    """What `taken` makes of the file; `otherwise` if there is none. Raises OSError, naming the file."""
    (info,) = place.filesystem.get_file_info([path])
    if info.type is fs.FileType.NotFound:
        return otherwise
    if info.type is fs.FileType.Directory:
        raise OSError(f"{place.scheme}{path}: is a folder; a night keeps a file there: remove it")
    with place.filesystem.open_input_stream(path) as file:
        text = file.read()
    try:
        return taken(parse_json(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = str(error) or type(error).__name__
        raise OSError(
            f"{place.scheme}{path}: is damaged, or not what a night wrote ({type(error).__name__}: {why}); "
            "put it back from the newest backup, or remove it: what it remembers is lost then"
        ) from None
