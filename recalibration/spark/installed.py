"""What the Spark that is installed here brings, by the names of its jars: neither it nor Java is started."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_JAR: Final = "hadoop-client-api-"
NEWEST_JAVA: Final = 22
"""for a Hadoop before 3.5: it calls what later ones refuse ("getSubject is not supported")"""


def installed_hadoop() -> str | None:
    """The version of Spark's Hadoop; None: no Spark is here, or one that is put together in another way."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        found = find_spec("pyspark")
        if found is None or found.origin is None:
            return None
        home = str(Path(found.origin).parent)
    jars = list(Path(home, "jars").glob(f"{_JAR}*.jar"))
    return jars[0].stem.removeprefix(_JAR) if len(jars) == 1 else None


def newest_java() -> int | None:
    """The feature version of Java above which the Spark that is installed here does not run; None: any."""
    hadoop = installed_hadoop()
    found = re.match(r"(\d+)\.(\d+)", hadoop or "")
    return NEWEST_JAVA if found is not None and (int(found[1]), int(found[2])) < (3, 5) else None
