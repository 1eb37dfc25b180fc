"""What ending TLS costs in proxy CPU time."""
