"""What good clients notice of hostile ones."""
