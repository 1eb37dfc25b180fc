"""A Spark cluster of processes on this machine, and a storage that speaks S3, both on loopback."""
