"""What the access log costs a request."""
