"""What requests used, as values: records of sessions, and the access log's data model. Pure."""
