"""A Spark session, the Java that runs it, and the jars that it needs."""
