"""The repository itself: tracked files, tables of the documentation, secrets in texts."""
