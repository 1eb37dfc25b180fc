"""From days and a limit to the limit proposed, and why."""
