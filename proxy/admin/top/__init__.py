"""Who is throttled, by how much and why: snapshots for `sluice top`, and their text."""
