"""The access log of one process: records in, finished Parquet files out, beside the event loop."""
