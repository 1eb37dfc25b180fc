"""What many configured entities cost."""
