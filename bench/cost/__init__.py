"""CPU time and memory of the proxy against HAProxy."""
