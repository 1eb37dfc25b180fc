"""What the producer-id quota adds to a Produce of a known id."""
