"""The configuration: its sections, the file, its reload."""
