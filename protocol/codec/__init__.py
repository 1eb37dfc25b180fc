"""Full decode and encode of every message, from generated schemas. Cold path: no frame is forwarded by it."""
