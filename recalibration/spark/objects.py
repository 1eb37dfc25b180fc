"""Objects that are made once, whoever tries: what pyarrow cannot ask of a store, Hadoop's S3A can."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""S3A knows it from Hadoop 3.4.2, that is Spark 4.1, on"""
_THERE = frozenset({"RemoteFileChangedException", "FileAlreadyExistsException"})


class CannotCreateOnceError(Exception):
    """The store, or the way to it, has no such thing."""


def create_once(spark: SparkSession, uri: str, content: bytes) -> bool:
    """Make an object if there is none of that name. Raises CannotCreateOnceError.

    False: there is one; it may be ours, if the answer was lost and the client has tried again.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        path = jvm.org.apache.hadoop.fs.Path(uri)
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        stream = files.createFile(path).overwrite(False).must(_CONDITIONAL, True).build()
        stream.write(bytearray(content))
        stream.close()
    except PySparkException as error:  # a file system of Hadoop's that does not know the condition
        raise CannotCreateOnceError(str(error).splitlines()[0]) from None
    except Py4JJavaError as error:
        name = error.java_exception.getClass().getSimpleName()
        if name in _THERE:
            return False
        raise CannotCreateOnceError(f"{name}: {error.java_exception.getMessage()}") from None
    return True
