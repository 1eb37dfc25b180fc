"""A plan's files: JSON, Parquet, one HTML page; published whole or not at all."""
