"""What the nightly job costs."""
