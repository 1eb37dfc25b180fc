"""The jars that Spark lacks for S3, in the cache that all checkouts share."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sluice.recalibration.spark.spark_jars import LOCK_FILE, fetch_jars
from testkit.kafka.dist import cache_folder


def spark_jars() -> Path:
    """A folder of them; missing ones are downloaded. Raises JarError if they cannot be."""
    digest = hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest()[:8]
    folder = cache_folder() / f"spark-jars-{digest}"
    fetch_jars(folder)
    return folder
