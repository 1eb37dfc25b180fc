"""Generators of documentation, schemas and tables. Not shipped in the wheel."""
