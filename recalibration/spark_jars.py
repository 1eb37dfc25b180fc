"""`python -m sluice.recalibration.spark_jars`: the old name of `sluice spark-jars`, for one release more."""

from sluice.recalibration.cli import run_alone, spark_jars

if __name__ == "__main__":
    run_alone(spark_jars)
