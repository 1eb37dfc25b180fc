"""Settings of a sink → the sink. Each is imported only where it is used: pyarrow and aiokafka take long."""

from __future__ import annotations

import importlib.util
from typing import Final

from sluice.proxy.access_log.sinks.sink import BucketSettings, DirectorySettings, Sink, SinkSettings
from sluice.quotas.files.config_error import ConfigError, Problem

_REMEDY: Final = (
    "it comes with the extra access-log: in Sluice's folder pip install -r requirements/image.txt (pinned), "
    "or pip install '.[access-log]'; of a wheel pip install 'FILE.whl[access-log]'"
)


def require_pyarrow() -> None:
    """Raises ConfigError if pyarrow is not installed. Does not import it: that takes most of a second."""
    if importlib.util.find_spec("pyarrow") is None:
        message = f"needs the package pyarrow, which is missing; {_REMEDY}"
        raise ConfigError([Problem(message, path="access_log")])


def make_sink(settings: SinkSettings) -> Sink:
    """Not connected to anything yet. Raises ConfigError for a folder or file that cannot be used."""
    if isinstance(settings, DirectorySettings):
        from sluice.proxy.access_log.sinks.directory import DirectorySink

        return DirectorySink(settings)
    if isinstance(settings, BucketSettings):
        from sluice.proxy.access_log.sinks.bucket import BucketSink

        return BucketSink(settings)
    from sluice.proxy.access_log.sinks.topic import TopicSink

    return TopicSink(settings)
