"""Writers of the access log for tests: started and ended, with a look at what is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sluice.proxy.access_log.sinks.sink import DirectorySettings, SinkSettings
from sluice.proxy.access_log.writer import AccessWriter, AccessWriterSettings

ENDS_WITHIN_S = 20.0


def settings_of(sink: SinkSettings | Path, **more: Any) -> AccessWriterSettings:
    """A path: of a folder."""
    chosen = DirectorySettings(sink) if isinstance(sink, Path) else sink
    return AccessWriterSettings(**{"sink": chosen, "instance": "proxy-1", **more})


@contextmanager
def writing(sink: SinkSettings | Path, **more: Any) -> Iterator[AccessWriter]:
    """A writer that has been started; closed at the end, unless the test did."""
    writer = AccessWriter(settings_of(sink, **more))
    writer.start()
    try:
        yield writer
    finally:
        writer.close(ENDS_WITHIN_S)
