"""The pump held against the Python code: two worlds, the same steps, and all that may differ compared."""
