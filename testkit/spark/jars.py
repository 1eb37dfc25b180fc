"""The jars that Spark lacks for S3, in the cache that all checkouts share."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sluice.recalibration.spark.spark_jars import fetch_jars, jar_set
from testkit.kafka.dist import cache_folder


def spark_jars() -> Path:
    """A folder of them; missing ones are downloaded. Raises JarError if they cannot be."""
    jars = jar_set()
    digest = hashlib.sha256(jars.lock_file.read_bytes()).hexdigest()[:8]
    folder = cache_folder() / f"spark-jars-{digest}"
    fetch_jars(folder, jars)
    return folder
