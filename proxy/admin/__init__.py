"""The admin port and the admin socket: what people and Prometheus may ask a running proxy."""
