"""Mutants of the pure packages, and whether the unit tests notice them."""
