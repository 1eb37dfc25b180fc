"""What the access log's writer costs, and the loop beside it."""
