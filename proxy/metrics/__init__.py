"""Records and gauges → counters, log lines and the pages that Prometheus reads."""
