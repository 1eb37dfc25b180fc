"""Where limits come from, where they are asked for and changed, and what survives a restart."""
