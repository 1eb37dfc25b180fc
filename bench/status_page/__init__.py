"""What the status page costs the event loop."""
