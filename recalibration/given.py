"""The quota file and the settings that the job is given: by a path, or s3://bucket/file.

On a cluster the driver may run on a machine that has none of the submitter's files.
"""

from __future__ import annotations

from pathlib import Path

from sluice.quotas.files.config_error import ConfigError, Problem, QuotaFileError
from sluice.quotas.files.load import MAX_QUOTAS_BYTES, load_quotas
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.settings_file import load_settings, parse_settings


def quotas_at(place: str) -> QuotaLimits:
    """Raises QuotaFileError when it cannot be read or used; ImportError where S3 needs what is missing."""
    if "://" not in place:
        return load_quotas(Path(place))
    try:
        text = _object(place, "quota")
    except ConfigError as error:
        raise QuotaFileError(error.problems) from None
    return parse_quotas(text, place)


def settings_at(place: str) -> JobSettings:
    """Raises ConfigError when it cannot be read or used; ImportError where S3 needs what is missing."""
    if "://" not in place:
        return load_settings(Path(place))
    return parse_settings(_object(place, "settings"), place)


def _object(uri: str, what: str) -> str:
    from sluice.recalibration.log.reader import LogError, LogFolder  # late: it brings Spark

    try:
        place = LogFolder.of(uri)
        with place.filesystem.open_input_stream(place.root) as stream:
            content = bytes(stream.read(MAX_QUOTAS_BYTES + 1))
        if len(content) > MAX_QUOTAS_BYTES:
            raise OSError(f"has more than {MAX_QUOTAS_BYTES:,} bytes")
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, LogError) as error:
        reason = f"cannot read the {what} file: {str(error).splitlines()[0]}"
    except UnicodeDecodeError:
        reason = "not UTF-8"
    raise ConfigError([Problem(reason, source=uri)])
