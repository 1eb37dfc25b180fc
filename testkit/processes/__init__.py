"""Child processes that never outlive their parent, free ports, and what Linux knows of a process."""
